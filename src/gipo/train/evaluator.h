#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gipo/policy/model.h"

namespace gipo {

// Mean and deviation (of the population) of a set of episode returns.
struct ReturnStats {
  double mean = 0, std = 0;
  std::int64_t episodes = 0;
};
ReturnStats return_stats(std::span<const double> returns);

struct EvalTask {
  std::string env_id;
  std::optional<std::int64_t> time_limit;
  OptionValues env_options;
  std::int64_t episodes = 1;
  std::uint64_t seed = 0;  // episode k starts from the stream derived from (seed, "eval", k)
  bool greedy = true;      // the most likely action, or a sampled one
};

// Plays whole episodes with fixed weights.
ReturnStats evaluate(const ModelSpec& model, const Weights& weights, const EvalTask& task);

}  // namespace gipo
