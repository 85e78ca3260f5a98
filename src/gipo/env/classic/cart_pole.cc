#include "gipo/env/classic/cart_pole_physics.h"
#include "gipo/env/classic/classic_env.h"

namespace gipo::cart_pole {
namespace {

EnvSpec cart_pole_spec() {
  return {.id = "CartPole-v1",
          .summary = "balance a pole on a cart that is pushed left or right",
          .observation_size = 4,
          .action = ActionSpace::discrete(2),
          .time_limit = 500};
}

// The same for a policy that remembers: velocities must be found from what was seen before.
EnvSpec hidden_velocity_spec() {
  EnvSpec spec = cart_pole_spec();
  spec.id = "CartPoleHiddenVelocity-v1";
  spec.summary = "CartPole-v1 without the two velocities: needs memory";
  spec.observation_size = 2;
  return spec;
}

class HiddenVelocity final : public PhysicsEnv<Physics> {
 public:
  HiddenVelocity() : PhysicsEnv(hidden_velocity_spec()) {}

  void observe(std::span<double> observation) const override { show_float32({state_[0], state_[2]}, observation); }
};

const RegisterEnv kRegistered{cart_pole_spec(), [] { return std::make_unique<PhysicsEnv<Physics>>(cart_pole_spec()); }};
const RegisterEnv kHiddenVelocity{hidden_velocity_spec(), [] { return std::make_unique<HiddenVelocity>(); }};

}  // namespace
}  // namespace gipo::cart_pole
