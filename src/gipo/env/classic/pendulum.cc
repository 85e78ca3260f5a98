#include <algorithm>
#include <cmath>
#include <numbers>

#include "gipo/env/classic/classic_env.h"

namespace gipo::pendulum {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kGravity = 10.0;
constexpr double kMass = 1.0;
constexpr double kLength = 1.0;
constexpr double kSeconds = 0.05;  // of one step
constexpr double kMaxSpeed = 8.0;
constexpr float kMaxTorque = 2.0f;

EnvSpec pendulum_spec() {
  return {.id = "Pendulum-v1",
          .summary = "swing a pendulum up and hold it there",
          .observation_size = 3,
          .action = ActionSpace::box({-kMaxTorque}, {kMaxTorque}),
          .time_limit = 200};
}

// The angle from upright, in [-pi, pi). The remainder takes the divisor's sign.
double normalized(double angle) {
  double turn = std::fmod(angle + kPi, 2 * kPi);
  if (turn < 0) turn += 2 * kPi;
  return turn - kPi;
}

// State: angle from upright, not wrapped; angular velocity.
class Pendulum final : public ClassicEnv<2> {
 public:
  Pendulum() : ClassicEnv(pendulum_spec()) {}

  void observe(std::span<double> observation) const override {
    const auto& [theta, speed] = state_;
    show_float32({std::cos(theta), std::sin(theta), speed}, observation);
  }

 private:
  void start_episode(RandomStream& random) override {
    state_[0] = random.uniform(-kPi, kPi);
    state_[1] = random.uniform(-1.0, 1.0);
  }

  Outcome advance(std::span<const double> action) override {
    auto& [theta, speed] = state_;
    // The action space is float32, and so is every term of the torque alone.
    const float torque = std::clamp(static_cast<float>(action[0]), -kMaxTorque, kMaxTorque);
    const float torque_cost = 0.001f * (torque * torque);
    const float torque_acc = static_cast<float>(3.0 / (kMass * (kLength * kLength))) * torque;

    // The cost is of the state before the step.
    const double off = normalized(theta);
    const double cost = off * off + 0.1 * (speed * speed) + torque_cost;

    speed += (3 * kGravity / (2 * kLength) * std::sin(theta) + torque_acc) * kSeconds;
    speed = std::clamp(speed, -kMaxSpeed, kMaxSpeed);
    theta += speed * kSeconds;
    return {-cost, false};
  }
};

const RegisterEnv kRegistered{pendulum_spec(), [] { return std::make_unique<Pendulum>(); }};

}  // namespace
}  // namespace gipo::pendulum
