// Pendulum-v1. Compiles for host and device.
#pragma once

#include <cmath>
#include <numbers>

#include "gipo/env/classic/physics.h"

namespace gipo::pendulum {

inline constexpr double kPi = std::numbers::pi;
inline constexpr double kGravity = 10.0;
inline constexpr double kMass = 1.0;
inline constexpr double kLength = 1.0;
inline constexpr double kSeconds = 0.05;  // of one step
inline constexpr double kMaxSpeed = 8.0;
inline constexpr float kMaxTorque = 2.0f;

// The angle from upright, in [-pi, pi). The remainder takes the divisor's sign.
GIPO_HD inline double normalized(double angle) {
  double turn = std::fmod(angle + kPi, 2 * kPi);
  if (turn < 0) turn += 2 * kPi;
  return turn - kPi;
}

// State: angle from upright, not wrapped; angular velocity.
struct Physics {
  using Real = double;
  static constexpr int kState = 2, kObservation = 3;

  template <class Random>
  GIPO_HD static void start(double* state, Random& random) {
    state[0] = random.uniform(-kPi, kPi);
    state[1] = random.uniform(-1.0, 1.0);
  }

  GIPO_HD static ClassicOutcome advance(double* state, double action) {
    double &theta = state[0], &speed = state[1];
    // The action space is float32, and so is every term of the torque alone.
    const float torque = within(static_cast<float>(action), -kMaxTorque, kMaxTorque);
    const float torque_cost = 0.001f * (torque * torque);
    const float torque_acc = static_cast<float>(3.0 / (kMass * (kLength * kLength))) * torque;

    // The cost is of the state before the step.
    const double off = normalized(theta);
    const double cost = off * off + 0.1 * (speed * speed) + torque_cost;

    speed += (3 * kGravity / (2 * kLength) * std::sin(theta) + torque_acc) * kSeconds;
    speed = within(speed, -kMaxSpeed, kMaxSpeed);
    theta += speed * kSeconds;
    return {-cost, false};
  }

  GIPO_HD static void observe(const double* state, double* observation) {
    observation[0] = std::cos(state[0]);
    observation[1] = std::sin(state[0]);
    observation[2] = state[1];
  }
};

}  // namespace gipo::pendulum
