#include "gipo/env/classic/classic_env.h"
#include "gipo/env/classic/mountain_car_physics.h"

namespace gipo::mountain_car {
namespace {

EnvSpec mountain_car_spec() {
  return {.id = "MountainCar-v0",
          .summary = "drive a weak car out of a valley by pushing left, not at all, or right",
          .observation_size = 2,
          .action = ActionSpace::discrete(3),
          .time_limit = 200};
}

const RegisterEnv kRegistered{mountain_car_spec(),
                              [] { return std::make_unique<PhysicsEnv<Physics>>(mountain_car_spec()); }};

}  // namespace
}  // namespace gipo::mountain_car
