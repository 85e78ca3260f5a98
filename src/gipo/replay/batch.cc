#include "gipo/replay/batch.h"

namespace gipo {

Batch::Batch(std::size_t steps, std::size_t observation_size_, std::size_t action_dims_)
    : size(steps),
      observation_size(observation_size_),
      action_dims(action_dims_),
      observation(2 * steps * observation_size_),  // windows of one step each at the worst
      action(steps * action_dims_),
      log_prob(steps * action_dims_),
      reward(steps),
      advantage(steps),
      target(steps),
      version(steps),
      env_step(steps) {
  windows.reserve(steps);
}

}  // namespace gipo
