#include <cmath>
#include <numbers>

#include "gipo/env/classic/classic_env.h"

namespace gipo::cart_pole {
namespace {

constexpr double kGravity = 9.8;
constexpr double kPoleMass = 0.1;
constexpr double kTotalMass = kPoleMass + 1.0;
constexpr double kHalfLength = 0.5;
constexpr double kPoleMoment = kPoleMass * kHalfLength;
constexpr double kForce = 10.0;
constexpr double kSeconds = 0.02;  // of one step
constexpr double kTrack = 2.4;
constexpr double kFallen = 12 * 2 * std::numbers::pi / 360;

EnvSpec cart_pole_spec() {
  return {.id = "CartPole-v1",
          .summary = "balance a pole on a cart that is pushed left or right",
          .observation_size = 4,
          .action = ActionSpace::discrete(2),
          .time_limit = 500};
}

// The same for a policy that remembers: velocities must be found from what was seen before.
EnvSpec hidden_velocity_spec() {
  EnvSpec spec = cart_pole_spec();
  spec.id = "CartPoleHiddenVelocity-v1";
  spec.summary = "CartPole-v1 without the two velocities: needs memory";
  spec.observation_size = 2;
  return spec;
}

// State: position, velocity, angle from upright, angular velocity.
class CartPole : public ClassicEnv<4> {
 public:
  explicit CartPole(EnvSpec spec = cart_pole_spec()) : ClassicEnv(std::move(spec)) {}

  void observe(std::span<double> observation) const override {
    show_float32({state_[0], state_[1], state_[2], state_[3]}, observation);
  }

 private:
  void start_episode(RandomStream& random) override {
    for (double& x : state_) x = random.uniform(-0.05, 0.05);
  }

  Outcome advance(std::span<const double> action) override {
    auto& [x, x_dot, theta, theta_dot] = state_;
    const double force = action[0] == 1 ? kForce : -kForce;
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

    const bool terminated = x < -kTrack || x > kTrack || theta < -kFallen || theta > kFallen;
    return {1.0, terminated};
  }
};

class HiddenVelocity final : public CartPole {
 public:
  HiddenVelocity() : CartPole(hidden_velocity_spec()) {}

  void observe(std::span<double> observation) const override { show_float32({state_[0], state_[2]}, observation); }
};

const RegisterEnv kRegistered{cart_pole_spec(), [] { return std::make_unique<CartPole>(); }};
const RegisterEnv kHiddenVelocity{hidden_velocity_spec(), [] { return std::make_unique<HiddenVelocity>(); }};

}  // namespace
}  // namespace gipo::cart_pole
