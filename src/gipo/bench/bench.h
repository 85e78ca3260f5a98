#pragma once

#include <functional>
#include <string>
#include <vector>

namespace gipo {

// One line of `gipo bench`: a figure beside a reference measured in the same run, so that it can be read on any machine.
struct BenchRow {
  std::string name;
  double value = 0;
  std::string unit;
  std::string reference;  // what it is compared with, in words; empty: nothing
  double ratio = 0;       // share of the reference, as `reference` says
};

// One measurement of a few seconds, and the rows it gives: shown before the next one begins.
struct BenchCase {
  std::string name;
  std::function<std::vector<BenchRow>()> measure;
};

struct Bench {
  std::string name, summary;
  std::function<std::vector<BenchCase>()> cases;
  bool by_name_alone = false;  // not every machine can run it
};

// learner, inference, replay, env, train, scaling, images, cuda, population, vla.
const std::vector<Bench>& benches();

std::vector<BenchCase> bench_learner();
std::vector<BenchCase> bench_inference();
std::vector<BenchCase> bench_replay();
std::vector<BenchCase> bench_env();
std::vector<BenchCase> bench_train();
std::vector<BenchCase> bench_scaling();
std::vector<BenchCase> bench_images();  // none without libtorch
std::vector<BenchCase> bench_cuda();
std::vector<BenchCase> bench_population();
std::vector<BenchCase> bench_vla();  // none without libtorch

// Seconds of one call: the best of many short runs, so that what else the machine does is left out.
double best_seconds(const std::function<void()>& call);
// Both in turn, so that a machine that changes its speed does so for both.
std::pair<double, double> best_seconds(const std::function<void()>& one, const std::function<void()>& other);

// Seconds of one call, and the operations per second that a product of two 2048 x 2048 matrices reaches in the same
// run: the reference of all linear algebra. The best product of the whole process counts.
std::pair<double, double> best_beside_sgemm(const std::function<void()>& call);

}  // namespace gipo
