#include "gipo/env/classic/acrobot_physics.h"
#include "gipo/env/classic/classic_env.h"

namespace gipo::acrobot {
namespace {

EnvSpec acrobot_spec() {
  return {.id = "Acrobot-v1",
          .summary = "swing a two-link arm above the bar with a torque at its elbow",
          .observation_size = 6,
          .action = ActionSpace::discrete(3),
          .time_limit = 500};
}

const RegisterEnv kRegistered{acrobot_spec(), [] { return std::make_unique<PhysicsEnv<Physics>>(acrobot_spec()); }};

}  // namespace
}  // namespace gipo::acrobot
