#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "gipo/core/random.h"
#include "gipo/policy/weights.h"
#include "gipo/run/records.h"

namespace gipo {

struct Plan;

struct EvalTask {
  EnvSpec spec;
  EnvOptions env;
  OptionValues env_options;
  std::int64_t episodes = 1;
  std::uint64_t seed = 0;  // see start_seed
  bool greedy = true;      // the most likely action, or a sampled one
  const Stop* stop = nullptr;
  // One episode after the other. Inference on many rows at once may round a row otherwise than on that row alone, so that
  // only these can be played again by themselves, to the last bit.
  bool apart = false;
  std::string device = "cpu";  // PolicyRoom::device
};

// Where its networks run: on the CPU, but those of a large model where that learns.
std::string eval_device(const Plan& plan);

// What episode k of an evaluation starts from, and where its actions come from where they are sampled.
std::uint64_t start_seed(std::uint64_t seed, std::size_t episode);
RandomStream action_stream(std::uint64_t seed, std::size_t episode);

// Plays whole episodes with fixed weights. One in which the environment gave what is no number, or broke down, does not
// count: it is played again from another start. Throws RunError, naming the environment, where that goes on; and
// Interrupted.
Evaluation evaluate(const ModelSpec& model, const Weights& weights, const EvalTask& task);

}  // namespace gipo
