// MountainCarContinuous-v0. Compiles for host and device.
#pragma once

#include <cmath>

#include "gipo/env/classic/physics.h"

namespace gipo::mountain_car_continuous {

inline constexpr double kPower = 0.0015;
inline constexpr double kGravity = 0.0025;
inline constexpr float kLeftWall = -1.2f, kRightEnd = 0.6f;
inline constexpr float kMaxSpeed = 0.07f;
inline constexpr float kGoal = 0.45f;

// NumPy rounds to float32 where an array element takes part. An action within its bounds is one; a clipped action
// is a plain number, so the sum is then float64 until it meets the velocity.
GIPO_HD inline float acceleration(float asked, float position) {
  const double slope = kGravity * std::cos(static_cast<double>(3 * position));
  if (asked < -1) return static_cast<float>(-kPower - slope);
  if (asked > 1) return static_cast<float>(kPower - slope);
  return asked * static_cast<float>(kPower) - static_cast<float>(slope);
}

// State: position, velocity; in float32, which is what Gymnasium's becomes on its first step.
struct Physics {
  using Real = float;
  static constexpr int kState = 2, kObservation = 2;

  template <class Random>
  GIPO_HD static void start(float* state, Random& random) {
    state[0] = static_cast<float>(random.uniform(-0.6, -0.4));
    state[1] = 0.0f;
  }

  GIPO_HD static ClassicOutcome advance(float* state, double action) {
    float &position = state[0], &velocity = state[1];
    const float asked = static_cast<float>(action);  // the action space is float32

    velocity = within(velocity + acceleration(asked, position), -kMaxSpeed, kMaxSpeed);
    position = within(position + velocity, kLeftWall, kRightEnd);
    if (position == kLeftWall && velocity < 0) velocity = 0;

    // The force asked for is paid, not the one the engine gives. Its square is exact in double.
    const bool terminated = position >= kGoal && velocity >= 0;
    const double paid = static_cast<double>(asked) * static_cast<double>(asked);
    return {(terminated ? 100.0 : 0.0) - paid * 0.1, terminated};
  }

  GIPO_HD static void observe(const float* state, double* observation) {
    observation[0] = state[0];
    observation[1] = state[1];
  }
};

}  // namespace gipo::mountain_car_continuous
