#pragma once

#include <cstdint>
#include <string>

#include "gipo/clone/demonstrations.h"
#include "gipo/learner/learner.h"
#include "gipo/plan/config_file.h"
#include "gipo/policy/model.h"
#include "gipo/replay/replay_buffer.h"

namespace gipo {

// For how much of all updates the regime "stale" keeps data.
inline constexpr double kStaleWindow = 0.87;

// A run's config with all that follows from it: the dial, the task, the networks. Made before anything is created, so
// that every mistake is found first.
struct Plan {
  Config config;
  EnvSpec env;
  ModelSpec model;
  std::string name, run_dir;

  // The dial: window = capacity / env_steps_per_update. A run that is lengthened keeps the dial of its beginning.
  std::int64_t dial_updates = 0;  // learner.updates then
  std::int64_t capacity = 0;
  double env_steps_per_update = 0;
  double window = 0;
  std::int64_t t_old = 0, warmup = 0;
  std::size_t actors = 0, envs_per_actor = 0, segment_length = 0;
  std::size_t workers = 1;      // processes of each actor, for tasks of Python packages
  bool shared_workers = false;  // all actors together have these, and are stepped together
  Sampling sampling = Sampling::kSegments;
  std::int64_t updates_per_rollout = 0;  // on-policy: epochs * rollout / batch; 0 otherwise

  std::size_t envs() const { return actors * envs_per_actor; }
  bool on_policy() const { return updates_per_rollout > 0; }
  // Whether it learns from demonstrations. There is then neither dial nor replay, and every sample has the weight 1.
  bool clones() const { return !config.clone.data.empty(); }
  // Environment steps that must have been taken before an update (0 is the first).
  std::int64_t env_steps_due(std::int64_t update) const;
  // Of a long lockstep collection: rounds after which what is finished enters the replay, and the run may stop.
  std::int64_t rounds_between_drains() const;
  // Environment steps of the whole run, and of one of that many updates.
  std::int64_t total_env_steps() const { return total_env_steps(config.learner.updates); }
  std::int64_t total_env_steps(std::int64_t updates) const;
  // The fewest updates of a run with at least that many environment steps; on-policy, of whole rollouts. Above 1e12,
  // the most that learner.updates may be, where that is not enough.
  std::int64_t updates_for(std::int64_t env_steps) const;
  // Whether those can be counted: no more than 1e15.
  bool countable() const;
  std::size_t replay_bytes() const;
  TransitionSpec transition() const;
  ReplayShape replay_shape() const;
  LearnerSetup learner_setup() const;
  DemonstrationUse demonstration_use() const;
};

// Throws Error naming the key, the value, where it was set and what is accepted.
Plan make_plan(const LoadedConfig& loaded);

// How many environments an evaluation has, and in how many processes those of a Python package are.
std::size_t evaluated_together(std::int64_t episodes);
std::size_t evaluation_workers();

// The dial in one line.
std::string dial(const Plan& plan);

}  // namespace gipo
