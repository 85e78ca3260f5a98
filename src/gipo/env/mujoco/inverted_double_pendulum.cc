#include <algorithm>
#include <cmath>

#include "gipo/env/mujoco/mujoco_env.h"

namespace gipo::inverted_double_pendulum {
namespace {

using namespace task;

EnvSpec inverted_double_pendulum_spec() {
  return {.id = "InvertedDoublePendulum-v5",
          .summary = "balance a pole of two links on a cart that is pushed",
          .observation_size = 9,
          .action = ActionSpace::box({-1}, {1}),
          .time_limit = 1000,
          .options = {xml_file("inverted_double_pendulum.xml"), frame_skip(5),
                      weight("healthy_reward", 10, "Reward of each step in which the pole stands."), reset_noise(0.1)}};
}

class InvertedDoublePendulum final : public MujocoEnv {
 public:
  explicit InvertedDoublePendulum(const OptionValues& o)
      : MujocoEnv(inverted_double_pendulum_spec(), o, {.nq = 3, .nv = 3, .nsite = 1}),
        healthy_reward_(number(o, "healthy_reward")),
        reset_noise_scale_(number(o, "reset_noise_scale")) {
    own_spec().observation_size = 1 + 2 * angles().size() + qvel().size() + 1;
  }

  void observe(std::span<double> observation) const override {
    GIPO_CHECK(observation.size() == spec().observation_size);
    const auto clipped = [](double x) { return std::clamp(x, -10.0, 10.0); };
    double* out = observation.data();
    *out++ = qpos()[0];
    for (const double angle : angles()) *out++ = std::sin(angle);
    for (const double angle : angles()) *out++ = std::cos(angle);
    for (const double speed : qvel()) *out++ = clipped(speed);
    *out++ = clipped(data().qfrc_constraint[0]);
  }

 private:
  std::span<const double> angles() const { return qpos().subspan(1); }

  void start(RandomStream& random) override {
    add_uniform(random, {-reset_noise_scale_, reset_noise_scale_}, qpos());
    add_normal(random, reset_noise_scale_, qvel());
  }

  Outcome play(std::span<const double> action) override {
    simulate(action);
    const double x = data().site_xpos[0], y = data().site_xpos[2];  // of the tip
    const double speed1 = qvel()[1], speed2 = qvel()[2];
    const double distance_penalty = 0.01 * (x * x) + (y - 2) * (y - 2);
    const double velocity_penalty = 1e-3 * (speed1 * speed1) + 5e-3 * (speed2 * speed2);
    const bool fallen = y <= 1;
    return {(fallen ? 0 : healthy_reward_) - distance_penalty - velocity_penalty, fallen};
  }

  double healthy_reward_, reset_noise_scale_;
};

const RegisterEnv kRegistered{inverted_double_pendulum_spec(),
                              [](const OptionValues& o) { return std::make_unique<InvertedDoublePendulum>(o); }};

}  // namespace
}  // namespace gipo::inverted_double_pendulum
