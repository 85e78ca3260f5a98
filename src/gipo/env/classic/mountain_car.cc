#include <algorithm>
#include <cmath>

#include "gipo/env/classic/classic_env.h"

namespace gipo::mountain_car {
namespace {

constexpr double kForce = 0.001;
constexpr double kGravity = 0.0025;
constexpr double kLeftWall = -1.2, kRightEnd = 0.6;
constexpr double kMaxSpeed = 0.07;
constexpr double kGoal = 0.5;

EnvSpec mountain_car_spec() {
  return {.id = "MountainCar-v0",
          .summary = "drive a weak car out of a valley by pushing left, not at all, or right",
          .observation_size = 2,
          .action = ActionSpace::discrete(3),
          .time_limit = 200};
}

// State: position, velocity.
class MountainCar final : public ClassicEnv<2> {
 public:
  MountainCar() : ClassicEnv(mountain_car_spec()) {}

  void observe(std::span<double> observation) const override { show_float32({state_[0], state_[1]}, observation); }

 private:
  void start_episode(RandomStream& random) override { state_ = {random.uniform(-0.6, -0.4), 0.0}; }

  Outcome advance(std::span<const double> action) override {
    auto& [position, velocity] = state_;
    velocity += (action[0] - 1) * kForce + std::cos(3 * position) * -kGravity;
    velocity = std::clamp(velocity, -kMaxSpeed, kMaxSpeed);
    position = std::clamp(position + velocity, kLeftWall, kRightEnd);
    if (position == kLeftWall && velocity < 0) velocity = 0;
    return {-1.0, position >= kGoal && velocity >= 0};
  }
};

const RegisterEnv kRegistered{mountain_car_spec(), [] { return std::make_unique<MountainCar>(); }};

}  // namespace
}  // namespace gipo::mountain_car
