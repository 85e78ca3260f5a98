#pragma once

#include <string>
#include <vector>

#include "gipo/replay/replay_buffer.h"
#include "gipo/train/actor.h"

namespace gipo {

// One actor and what is around it, for benchmarks: environments, an untrained policy, segments, a replay.
class Collector {
 public:
  Collector(const std::string& id, std::size_t envs)
      : plan_(plan(id, envs)), actor_(plan_, 0), replay_(plan_.replay_shape(), RandomStream(1)) {
    weights_.policy.resize(plan_.model.policy_parameters());
    weights_.critic.resize(plan_.model.critic_parameters());
    weights_.scale = ObservationScale::identity(plan_.env.observation_size);
    RandomStream random(1);
    initialise_policy<float>(plan_.model, weights_.policy, random);
    initialise_critic<float>(plan_.model, weights_.critic, random);
  }
  void step() {
    actor_.step(weights_, 0);
    actor_.drain(replay_, episodes_);
    episodes_.clear();
  }

 private:
  static Plan plan(const std::string& id, std::size_t envs) {
    LoadedConfig loaded;
    loaded.config.env.id = id;
    loaded.config.env.count = static_cast<std::int64_t>(envs);
    loaded.config.staleness.actors = 1;
    return make_plan(loaded);
  }
  Plan plan_;
  Weights weights_;
  Actor actor_;
  ReplayBuffer replay_;
  std::vector<Episode> episodes_;
};

}  // namespace gipo
