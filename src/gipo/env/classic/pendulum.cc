#include "gipo/env/classic/classic_env.h"
#include "gipo/env/classic/pendulum_physics.h"

namespace gipo::pendulum {
namespace {

EnvSpec pendulum_spec() {
  return {.id = "Pendulum-v1",
          .summary = "swing a pendulum up and hold it there",
          .observation_size = 3,
          .action = ActionSpace::box({-kMaxTorque}, {kMaxTorque}),
          .time_limit = 200};
}

const RegisterEnv kRegistered{pendulum_spec(), [] { return std::make_unique<PhysicsEnv<Physics>>(pendulum_spec()); }};

}  // namespace
}  // namespace gipo::pendulum
