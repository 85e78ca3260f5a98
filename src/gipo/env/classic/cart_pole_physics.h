// CartPole-v1. Compiles for host and device.
#pragma once

#include <cmath>
#include <numbers>

#include "gipo/env/classic/physics.h"

namespace gipo::cart_pole {

inline constexpr double kGravity = 9.8;
inline constexpr double kPoleMass = 0.1;
inline constexpr double kTotalMass = kPoleMass + 1.0;
inline constexpr double kHalfLength = 0.5;
inline constexpr double kPoleMoment = kPoleMass * kHalfLength;
inline constexpr double kForce = 10.0;
inline constexpr double kSeconds = 0.02;  // of one step
inline constexpr double kTrack = 2.4;
inline constexpr double kFallen = 12 * 2 * std::numbers::pi / 360;

// State: position, velocity, angle from upright, angular velocity.
struct Physics {
  using Real = double;
  static constexpr int kState = 4, kObservation = 4;

  template <class Random>
  GIPO_HD static void start(double* state, Random& random) {
    for (int i = 0; i < kState; ++i) state[i] = random.uniform(-0.05, 0.05);
  }

  GIPO_HD static ClassicOutcome advance(double* state, double action) {
    double &x = state[0], &x_dot = state[1], &theta = state[2], &theta_dot = state[3];
    const double force = action == 1 ? kForce : -kForce;
    const double cosine = std::cos(theta), sine = std::sin(theta);

    // Barto, Sutton and Anderson (1983), without friction.
    const double push = (force + kPoleMoment * (theta_dot * theta_dot) * sine) / kTotalMass;
    const double theta_acc =
        (kGravity * sine - cosine * push) / (kHalfLength * (4.0 / 3.0 - kPoleMass * (cosine * cosine) / kTotalMass));
    const double x_acc = push - kPoleMoment * theta_acc * cosine / kTotalMass;

    // Explicit Euler: positions move with the old velocities.
    x += kSeconds * x_dot;
    x_dot += kSeconds * x_acc;
    theta += kSeconds * theta_dot;
    theta_dot += kSeconds * theta_acc;

    return {1.0, x < -kTrack || x > kTrack || theta < -kFallen || theta > kFallen};
  }

  GIPO_HD static void observe(const double* state, double* observation) {
    for (int i = 0; i < kObservation; ++i) observation[i] = state[i];
  }
};

}  // namespace gipo::cart_pole
