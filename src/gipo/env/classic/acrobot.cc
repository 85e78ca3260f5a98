#include <algorithm>
#include <cmath>
#include <numbers>

#include "gipo/env/classic/classic_env.h"

namespace gipo::acrobot {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kSeconds = 0.2;  // of one step
constexpr double kMass1 = 1.0, kMass2 = 1.0;
constexpr double kLength1 = 1.0;
constexpr double kCentre1 = 0.5, kCentre2 = 0.5;  // of mass, along each link
constexpr double kInertia1 = 1.0, kInertia2 = 1.0;
constexpr double kGravity = 9.8;
constexpr double kMaxSpeed1 = 4 * kPi, kMaxSpeed2 = 9 * kPi;

EnvSpec acrobot_spec() {
  return {.id = "Acrobot-v1",
          .summary = "swing a two-link arm above the bar with a torque at its elbow",
          .observation_size = 6,
          .action = ActionSpace::discrete(3),
          .time_limit = 500};
}

using State = std::array<double, 4>;  // angle 1 from hanging, angle 2 from link 1, their velocities

// d state / dt under a torque: Sutton and Barto's book, not the earlier paper, which lacks a term.
State slope(const State& state, double torque) {
  const auto& [theta1, theta2, speed1, speed2] = state;
  const double cosine2 = std::cos(theta2), sine2 = std::sin(theta2);
  const double d1 = kMass1 * (kCentre1 * kCentre1) +
                    kMass2 * (kLength1 * kLength1 + kCentre2 * kCentre2 + 2 * kLength1 * kCentre2 * cosine2) +
                    kInertia1 + kInertia2;
  const double d2 = kMass2 * (kCentre2 * kCentre2 + kLength1 * kCentre2 * cosine2) + kInertia2;
  const double phi2 = kMass2 * kCentre2 * kGravity * std::cos(theta1 + theta2 - kPi / 2);
  const double phi1 = -kMass2 * kLength1 * kCentre2 * (speed2 * speed2) * sine2 -
                      2 * kMass2 * kLength1 * kCentre2 * speed2 * speed1 * sine2 +
                      (kMass1 * kCentre1 + kMass2 * kLength1) * kGravity * std::cos(theta1 - kPi / 2) + phi2;
  const double acc2 = (torque + d2 / d1 * phi1 - kMass2 * kLength1 * kCentre2 * (speed1 * speed1) * sine2 - phi2) /
                      (kMass2 * (kCentre2 * kCentre2) + kInertia2 - d2 * d2 / d1);
  const double acc1 = -(d2 * acc2 + phi1) / d1;
  return {speed1, speed2, acc1, acc2};
}

State along(const State& from, double seconds, const State& k) {
  State to;
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] + seconds * k[i];
  return to;
}

// One step of the classical Runge-Kutta method.
State runge_kutta(const State& y, double torque) {
  const State k1 = slope(y, torque);
  const State k2 = slope(along(y, kSeconds / 2, k1), torque);
  const State k3 = slope(along(y, kSeconds / 2, k2), torque);
  const State k4 = slope(along(y, kSeconds, k3), torque);
  State sum;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i];
  return along(y, kSeconds / 6, sum);
}

double wrapped(double angle) {
  // A state that was loaded may hold any number: single turns off a huge angle would never end.
  if (!(std::abs(angle) < 1e4)) angle = std::remainder(angle, 2 * kPi);
  while (angle > kPi) angle -= 2 * kPi;
  while (angle < -kPi) angle += 2 * kPi;
  return angle;
}

class Acrobot final : public ClassicEnv<4> {
 public:
  Acrobot() : ClassicEnv(acrobot_spec()) {}

  void observe(std::span<double> observation) const override {
    const auto& [theta1, theta2, speed1, speed2] = state_;
    show_float32({std::cos(theta1), std::sin(theta1), std::cos(theta2), std::sin(theta2), speed1, speed2}, observation);
  }

 private:
  void start_episode(RandomStream& random) override {
    // Gymnasium's start is a float32 array; the first step makes it float64.
    for (double& x : state_) x = as_float32(random.uniform(-0.1, 0.1));
  }

  Outcome advance(std::span<const double> action) override {
    const double torque = action[0] - 1;
    auto& [theta1, theta2, speed1, speed2] = state_;
    state_ = runge_kutta(state_, torque);
    theta1 = wrapped(theta1);
    theta2 = wrapped(theta2);
    speed1 = std::clamp(speed1, -kMaxSpeed1, kMaxSpeed1);
    speed2 = std::clamp(speed2, -kMaxSpeed2, kMaxSpeed2);

    const bool above_bar = -std::cos(theta1) - std::cos(theta2 + theta1) > 1;
    return {above_bar ? 0.0 : -1.0, above_bar};
  }
};

const RegisterEnv kRegistered{acrobot_spec(), [] { return std::make_unique<Acrobot>(); }};

}  // namespace
}  // namespace gipo::acrobot
