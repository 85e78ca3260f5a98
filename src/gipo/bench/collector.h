#pragma once

#include <string>

#include "gipo/plan/plan.h"
#include "gipo/replay/replay_buffer.h"
#include "gipo/train/actor.h"
#include "gipo/train/intake.h"

namespace gipo {

// One actor and what is around it, for benchmarks: environments, an untrained policy, segments, a replay.
class Collector {
 public:
  Collector(const std::string& id, std::size_t envs)
      : plan_(plan(id, envs)),
        weights_(initial_weights(plan_.model, RandomStream(1))),
        actor_(actor_spec(plan_, 0)),
        replay_(plan_.replay_shape(), RandomStream(1)),
        intake_(replay_, plan_.envs()) {}
  void step() {
    actor_.step(weights_, 0);
    intake_.take(actor_.report());
    intake_.arrived().episodes.clear();
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
  Intake intake_;
};

}  // namespace gipo
