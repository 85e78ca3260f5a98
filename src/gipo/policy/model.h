#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "gipo/env/env.h"
#include "gipo/policy/distribution.h"
#include "gipo/policy/encoder.h"
#include "gipo/policy/options.h"

namespace gipo {

inline constexpr std::int64_t kMemoryBlocks = 2;  // of policy.memory = transformer

// What a policy is for, and how it was asked for: what the actor, the learner and a loaded policy must agree on. The
// networks follow from it (policy.h).
struct ModelSpec {
  PolicyOptions options;
  Fields fields;                     // of an observation, as the policy is given it
  std::size_t observation_size = 0;  // floats of all of them
  std::size_t privileged = 0;        // of these, the last, which only the critic reads
  ActionSpace action;                // the task's
  std::string spaces;                // the task's, as JSON, for files
  DistributionSpec distribution;     // the policy's
  std::vector<Encoder> encoders;     // [fields] what reads each; none: floats are made of all

  bool has_raw() const { return std::ranges::any_of(fields, &Field::raw); }
  bool is_large() const { return std::ranges::find(encoders, Encoder::kVla) != encoders.end(); }  // vla_spec.h
  bool has_memory() const { return options.memory != Memory::kNone; }
  bool needs_torch() const { return has_raw() || has_memory(); }
  // Numbers that a network with memory carries from step to step. Of transformer blocks: the inputs of each at the steps
  // before, the latest last, and how many of these there were.
  std::size_t memory_state() const {
    const auto size = static_cast<std::size_t>(options.memory_size);
    if (options.memory != Memory::kTransformer) return has_memory() ? size : 0;
    return static_cast<std::size_t>(kMemoryBlocks * (options.memory_window - 1)) * size + 1;
  }
  // Of a policy: its own, then the critic's where that has a memory too.
  std::size_t state_size() const { return memory_state() * (options.shared > 0 ? 1 : 2); }
};

// Throws Error where the distribution does not fit the task's actions.
ModelSpec make_model_spec(const PolicyOptions& options, const EnvSpec& env, std::vector<Encoder> encoders = {});
// Fields that an encoder reads are marked so, and no longer count among the floats.
void set_encoders(EnvSpec& env, const std::vector<Encoder>& encoders);

// A mask of valid choices, in a field behind the others.
void add_mask(ModelSpec& spec);

// The policy's action as the task takes it. Gaussian and binned actions live in units where a bounded range is -1 to 1;
// they are scaled to the task's range and clipped to it.
void to_env_action(const ModelSpec& spec, std::span<const float> action, std::span<double> env_action);

const char* name_of(ActionSpace::Kind kind);  // "discrete", "multi_discrete", "box", "composed"

}  // namespace gipo
