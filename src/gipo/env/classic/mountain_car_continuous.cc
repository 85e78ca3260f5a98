#include "gipo/env/classic/classic_env.h"
#include "gipo/env/classic/mountain_car_continuous_physics.h"

namespace gipo::mountain_car_continuous {
namespace {

EnvSpec mountain_car_continuous_spec() {
  return {.id = "MountainCarContinuous-v0",
          .summary = "drive a weak car out of a valley, paying for the force used",
          .observation_size = 2,
          .action = ActionSpace::box({-1}, {1}),
          .time_limit = 999};
}

const RegisterEnv kRegistered{mountain_car_continuous_spec(),
                              [] { return std::make_unique<PhysicsEnv<Physics>>(mountain_car_continuous_spec()); }};

}  // namespace
}  // namespace gipo::mountain_car_continuous
