#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gipo/env/env.h"

namespace gipo {

// One finished training episode, as a line of episodes.jsonl.
struct Episode {
  std::size_t env = 0;        // index over all environments
  std::int64_t number = 0;    // of that environment
  double episode_return = 0;  // unscaled
  std::int64_t length = 0;
  std::int64_t env_steps = 0;  // of the run, when it ended
  std::int64_t version = 0;    // of the policy that took its last step
  bool terminated = false;
  Success success = {};
};

// By name: rejected segments of training, episodes of evaluations that were played again.
using FaultCounts = std::map<std::string, std::uint64_t>;

// Mean and deviation (of the population) of a set of episode returns; where the task speaks of success, the share of
// episodes with success at any step, and at the last one.
struct ReturnStats {
  double mean = 0, std = 0;
  std::int64_t episodes = 0;
  std::optional<double> success_rate = {}, success_rate_last = {};
};
// Success may be left out; an episode of which it is not known does not count.
ReturnStats return_stats(std::span<const double> returns, std::span<const Success> success = {});

// One episode of an evaluation. start_seed and action_stream (train/evaluator.h) say what it was played from.
struct PlayedEpisode {
  double episode_return = 0;
  std::int64_t length = 0;
  std::uint64_t seed = 0;  // of the evaluation, or another where the episode was played again
};

struct Evaluation {
  ReturnStats returns;
  FaultCounts faults;      // episodes that were played again, by the name of what was wrong with them
  std::string last_fault;  // in words
  std::vector<PlayedEpisode> played;
};

// The best evaluation of a run so far, the first of equals.
struct BestEvaluation {
  std::int64_t update = 0, env_steps = 0;
  ReturnStats returns;
};
// As best.safetensors says it, beside what every policy says of itself.
std::map<std::string, std::string> metadata_of(const BestEvaluation& best);

}  // namespace gipo
