#include <algorithm>
#include <cmath>

#include "gipo/env/classic/classic_env.h"

namespace gipo::mountain_car_continuous {
namespace {

constexpr double kPower = 0.0015;
constexpr double kGravity = 0.0025;
constexpr float kLeftWall = -1.2f, kRightEnd = 0.6f;
constexpr float kMaxSpeed = 0.07f;
constexpr float kGoal = 0.45f;

EnvSpec mountain_car_continuous_spec() {
  return {.id = "MountainCarContinuous-v0",
          .summary = "drive a weak car out of a valley, paying for the force used",
          .observation_size = 2,
          .action = ActionSpace::box({-1}, {1}),
          .time_limit = 999};
}

// State: position, velocity; in float32, which is what Gymnasium's becomes on its first step.
class MountainCarContinuous final : public ClassicEnv<2, float> {
 public:
  MountainCarContinuous() : ClassicEnv(mountain_car_continuous_spec()) {}

  void observe(std::span<double> observation) const override { show_float32({state_[0], state_[1]}, observation); }

 private:
  void start_episode(RandomStream& random) override { state_ = {static_cast<float>(random.uniform(-0.6, -0.4)), 0.0f}; }

  Outcome advance(std::span<const double> action) override {
    auto& [position, velocity] = state_;
    const float asked = static_cast<float>(action[0]);  // the action space is float32

    velocity = std::clamp(velocity + acceleration(asked, position), -kMaxSpeed, kMaxSpeed);
    position = std::clamp(position + velocity, kLeftWall, kRightEnd);
    if (position == kLeftWall && velocity < 0) velocity = 0;

    // The force asked for is paid, not the one the engine gives.
    const bool terminated = position >= kGoal && velocity >= 0;
    return {(terminated ? 100.0 : 0.0) - std::pow(asked, 2) * 0.1, terminated};
  }

  // NumPy rounds to float32 where an array element takes part. An action within its bounds is one; a clipped action
  // is a plain number, so the sum is then float64 until it meets the velocity.
  static float acceleration(float asked, float position) {
    const double slope = kGravity * std::cos(static_cast<double>(3 * position));
    if (asked < -1) return static_cast<float>(-kPower - slope);
    if (asked > 1) return static_cast<float>(kPower - slope);
    return asked * static_cast<float>(kPower) - static_cast<float>(slope);
  }
};

const RegisterEnv kRegistered{mountain_car_continuous_spec(), [] { return std::make_unique<MountainCarContinuous>(); }};

}  // namespace
}  // namespace gipo::mountain_car_continuous
