#include "gipo/train/actor_spec.h"

#include "gipo/plan/plan.h"

namespace gipo {

std::uint64_t ActorSpec::own_seed() const {
  return incarnation > 0 ? derive_seed(seed, "incarnation", incarnation) : seed;
}

ActorSpec actor_spec(const Plan& plan, std::size_t index, std::uint64_t incarnation) {
  ActorSpec spec;
  spec.env = plan.env;
  spec.env_settings = plan.config.env;
  spec.env_options = plan.config.env_options;
  spec.model = plan.model;
  spec.transition = plan.transition();
  spec.advantage = plan.config.advantage;
  spec.first_env = index * plan.envs_per_actor;
  spec.envs = plan.envs_per_actor;
  spec.envs_of_run = plan.envs();
  spec.workers = plan.workers;
  spec.segment_length = plan.segment_length;
  spec.seed = static_cast<std::uint64_t>(plan.config.run.seed);
  spec.incarnation = incarnation;
  spec.device = plan.config.learner.device;
  spec.joined = plan.config.run.mode == RunMode::kAsync;
  return spec;
}

}  // namespace gipo
