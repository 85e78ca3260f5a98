#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gipo/policy/weights.h"
#include "gipo/run/records.h"

namespace gipo {

struct EvalTask {
  EnvSpec spec;
  EnvOptions env;
  OptionValues env_options;
  std::int64_t episodes = 1;
  std::uint64_t seed = 0;  // episode k starts from the stream derived from (seed, "eval", k)
  bool greedy = true;      // the most likely action, or a sampled one
  const Stop* stop = nullptr;
};

// Plays whole episodes with fixed weights. One in which the environment gave what is no number, or broke down, does not
// count: it is played again from another start. Throws RunError, naming the environment, where that goes on; and
// Interrupted.
Evaluation evaluate(const ModelSpec& model, const Weights& weights, const EvalTask& task);

}  // namespace gipo
