// Acrobot-v1. Compiles for host and device.
#pragma once

#include <cmath>
#include <numbers>

#include "gipo/env/classic/physics.h"

namespace gipo::acrobot {

inline constexpr double kPi = std::numbers::pi;
inline constexpr double kSeconds = 0.2;  // of one step
inline constexpr double kMass1 = 1.0, kMass2 = 1.0;
inline constexpr double kLength1 = 1.0;
inline constexpr double kCentre1 = 0.5, kCentre2 = 0.5;  // of mass, along each link
inline constexpr double kInertia1 = 1.0, kInertia2 = 1.0;
inline constexpr double kGravity = 9.8;
inline constexpr double kMaxSpeed1 = 4 * kPi, kMaxSpeed2 = 9 * kPi;

struct State {
  double at[4];  // angle 1 from hanging, angle 2 from link 1, their velocities
};

// d state / dt under a torque: Sutton and Barto's book, not the earlier paper, which lacks a term.
GIPO_HD inline State slope(const State& state, double torque) {
  const double theta1 = state.at[0], theta2 = state.at[1], speed1 = state.at[2], speed2 = state.at[3];
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
  return {{speed1, speed2, acc1, acc2}};
}

GIPO_HD inline State along(const State& from, double seconds, const State& k) {
  State to;
  for (int i = 0; i < 4; ++i) to.at[i] = from.at[i] + seconds * k.at[i];
  return to;
}

// One step of the classical Runge-Kutta method.
GIPO_HD inline State runge_kutta(const State& y, double torque) {
  const State k1 = slope(y, torque);
  const State k2 = slope(along(y, kSeconds / 2, k1), torque);
  const State k3 = slope(along(y, kSeconds / 2, k2), torque);
  const State k4 = slope(along(y, kSeconds, k3), torque);
  State sum;
  for (int i = 0; i < 4; ++i) sum.at[i] = k1.at[i] + 2 * k2.at[i] + 2 * k3.at[i] + k4.at[i];
  return along(y, kSeconds / 6, sum);
}

GIPO_HD inline double wrapped(double angle) {
  // A state that was loaded may hold any number: single turns off a huge angle would never end.
  if (!(std::abs(angle) < 1e4)) angle = std::remainder(angle, 2 * kPi);
  while (angle > kPi) angle -= 2 * kPi;
  while (angle < -kPi) angle += 2 * kPi;
  return angle;
}

struct Physics {
  using Real = double;
  static constexpr int kState = 4, kObservation = 6;

  template <class Random>
  GIPO_HD static void start(double* state, Random& random) {
    // Gymnasium's start is a float32 array; the first step makes it float64.
    for (int i = 0; i < kState; ++i) state[i] = as_float32(random.uniform(-0.1, 0.1));
  }

  GIPO_HD static ClassicOutcome advance(double* state, double action) {
    const double torque = action - 1;
    const State next = runge_kutta({{state[0], state[1], state[2], state[3]}}, torque);
    const double theta1 = wrapped(next.at[0]), theta2 = wrapped(next.at[1]);
    state[0] = theta1;
    state[1] = theta2;
    state[2] = within(next.at[2], -kMaxSpeed1, kMaxSpeed1);
    state[3] = within(next.at[3], -kMaxSpeed2, kMaxSpeed2);
    const bool above_bar = -std::cos(theta1) - std::cos(theta2 + theta1) > 1;
    return {above_bar ? 0.0 : -1.0, above_bar};
  }

  GIPO_HD static void observe(const double* state, double* observation) {
    observation[0] = std::cos(state[0]);
    observation[1] = std::sin(state[0]);
    observation[2] = std::cos(state[1]);
    observation[3] = std::sin(state[1]);
    observation[4] = state[2];
    observation[5] = state[3];
  }
};

}  // namespace gipo::acrobot
