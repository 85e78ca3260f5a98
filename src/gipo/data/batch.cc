#include "gipo/data/batch.h"

namespace gipo {

Batch::Batch(std::size_t steps, std::size_t observation_size_, std::size_t action_dims_)
    : size(steps),
      observation_size(observation_size_),
      action_dims(action_dims_),
      observation(2 * steps * observation_size_),  // stretches of one step each at the worst
      action(steps * action_dims_),
      log_prob(steps * action_dims_),
      reward(steps),
      advantage(steps),
      target(steps),
      version(steps),
      env_step(steps) {
  stretches.reserve(steps);
}

double Batch::bytes_needed(std::size_t steps, std::size_t observation_size, std::size_t action_dims) {
  constexpr double kSingle = 3 * sizeof(float) + sizeof(std::int64_t) + sizeof(double) + sizeof(Stretch);
  return static_cast<double>(steps) *
         (8.0 * static_cast<double>(observation_size) + 8.0 * static_cast<double>(action_dims) + kSingle);
}

}  // namespace gipo
