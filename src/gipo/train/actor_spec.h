#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gipo/data/transition.h"
#include "gipo/env/env.h"
#include "gipo/objective/options.h"
#include "gipo/policy/model.h"

namespace gipo {

struct Plan;

// All that an actor knows of its run. Values alone: it holds wherever the actor lives.
struct ActorSpec {
  EnvSpec env;  // the task that was asked, its options as the config has them, and its own
  EnvOptions env_settings;
  OptionValues env_options;
  ModelSpec model;
  TransitionSpec transition;
  AdvantageOptions advantage;

  std::size_t first_env = 0;    // number in the run of the first environment here; an actor is known by it
  std::size_t envs = 0;         // environments here
  std::size_t envs_of_run = 0;  // of all actors: what the run's count of steps grows by in a round
  std::size_t workers = 1;      // processes for tasks of Python packages
  std::size_t segment_length = 0;
  std::uint64_t seed = 0;      // of the run
  std::string device = "cpu";  // of its networks: PolicyRoom::device
  bool joined = false;         // PolicyRoom::joined: what it computes may then round otherwise from time to time
  // Each has random streams of its own. Of two actors with the same environments the later one has the greater.
  std::uint64_t incarnation = 0;
  std::vector<std::int64_t> first_episode = {};  // [envs] number of the next episode of each; empty: 0

  std::uint64_t own_seed() const;  // of this incarnation
};

// Of actor `index` of a run.
ActorSpec actor_spec(const Plan& plan, std::size_t index, std::uint64_t incarnation = 0);

}  // namespace gipo
