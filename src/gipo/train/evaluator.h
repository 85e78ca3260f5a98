#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gipo/policy/model.h"
#include "gipo/train/faults.h"

namespace gipo {

// Mean and deviation (of the population) of a set of episode returns; where the task speaks of success, the share of
// episodes with success at any step, and at the last one.
struct ReturnStats {
  double mean = 0, std = 0;
  std::int64_t episodes = 0;
  std::optional<double> success_rate = {}, success_rate_last = {};
};
// Success may be left out; an episode of which it is not known does not count.
ReturnStats return_stats(std::span<const double> returns, std::span<const Success> success = {});

struct EvalTask {
  EnvSpec spec;
  EnvOptions env;
  OptionValues env_options;
  std::int64_t episodes = 1;
  std::uint64_t seed = 0;  // episode k starts from the stream derived from (seed, "eval", k)
  bool greedy = true;      // the most likely action, or a sampled one
  const Stop* stop = nullptr;
};

// How many environments an evaluation has, and in how many processes those of a Python package are.
std::size_t evaluated_together(std::int64_t episodes);
std::size_t evaluation_workers();

struct Evaluation {
  ReturnStats returns;
  FaultCounts faults;      // episodes that were played again, by the name of what was wrong with them
  std::string last_fault;  // in words
};

// Plays whole episodes with fixed weights. One in which the environment gave what is no number, or broke down, does not
// count: it is played again from another start. Throws RunError, naming the environment, where that goes on; and
// Interrupted.
Evaluation evaluate(const ModelSpec& model, const Weights& weights, const EvalTask& task);

}  // namespace gipo
