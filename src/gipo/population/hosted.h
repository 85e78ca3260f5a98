#pragma once

#include <memory>
#include <span>
#include <vector>

#include "gipo/core/thread_pool.h"
#include "gipo/env/env.h"
#include "gipo/plan/plan.h"
#include "gipo/population/card_run.h"
#include "gipo/train/faults.h"

namespace gipo::population {

// The runs whose task is hosted, those whose steps take longest first.
std::vector<std::size_t> hosted_runs(std::span<const RunSpec> specs);

// The environments of hosted runs, stepped by a pool of threads. What comes of a step does not depend on their number.
class HostedEnvs {
 public:
  explicit HostedEnvs(std::size_t threads) : pool_(threads) {}

  // In place of those before: the environments of the runs whose task is hosted. memories[i]: where what run i asks and is
  // told lies on the host; its first observations are told at once.
  void begin(std::span<const Plan* const> plans, std::span<const RunSpec> specs, std::span<const RunMemory> memories);
  // Every environment of those of these runs that act takes a step. False where none acts.
  bool step(std::span<const std::size_t> runs);
  // Segments of a run that were dropped.
  Rejections rejections(std::size_t run) const;

 private:
  struct Place {
    std::unique_ptr<Env> env;
    std::vector<double> action;
    Rejections rejections;
  };
  struct HostedRun {
    const Plan* plan = nullptr;
    const RunSpec* spec = nullptr;
    RunMemory memory{};
    std::vector<Place> places;
  };
  struct Job {
    std::size_t run;
    std::size_t begin, end;  // environments
  };

  static void make(HostedRun& run);
  static void step(HostedRun& run, std::size_t env);
  static int start(HostedRun& run, std::size_t env);
  static bool look(const HostedRun& run, std::size_t env, float* to);
  static void reject(HostedRun& run, std::size_t env, Fault why);

  ThreadPool pool_;
  std::vector<HostedRun> all_;  // those that are not hosted have no places
  std::vector<Job> jobs_;
};

}  // namespace gipo::population
