// MountainCar-v0. Compiles for host and device.
#pragma once

#include <cmath>

#include "gipo/env/classic/physics.h"

namespace gipo::mountain_car {

inline constexpr double kForce = 0.001;
inline constexpr double kGravity = 0.0025;
inline constexpr double kLeftWall = -1.2, kRightEnd = 0.6;
inline constexpr double kMaxSpeed = 0.07;
inline constexpr double kGoal = 0.5;

// State: position, velocity.
struct Physics {
  using Real = double;
  static constexpr int kState = 2, kObservation = 2;

  template <class Random>
  GIPO_HD static void start(double* state, Random& random) {
    state[0] = random.uniform(-0.6, -0.4);
    state[1] = 0.0;
  }

  GIPO_HD static ClassicOutcome advance(double* state, double action) {
    double &position = state[0], &velocity = state[1];
    velocity += (action - 1) * kForce + std::cos(3 * position) * -kGravity;
    velocity = within(velocity, -kMaxSpeed, kMaxSpeed);
    position = within(position + velocity, kLeftWall, kRightEnd);
    if (position == kLeftWall && velocity < 0) velocity = 0;
    return {-1.0, position >= kGoal && velocity >= 0};
  }

  GIPO_HD static void observe(const double* state, double* observation) {
    observation[0] = state[0];
    observation[1] = state[1];
  }
};

}  // namespace gipo::mountain_car
