#include <cmath>

#include "gipo/env/mujoco/mujoco_env.h"

namespace gipo::inverted_pendulum {
namespace {

using namespace task;

EnvSpec inverted_pendulum_spec() {
  return {.id = "InvertedPendulum-v5",
          .summary = "balance a pole on a cart that is pushed",
          .observation_size = 4,
          .action = ActionSpace::box({-3}, {3}),
          .time_limit = 1000,
          .options = {xml_file("inverted_pendulum.xml"), frame_skip(2), reset_noise(0.01)}};
}

class InvertedPendulum final : public MujocoEnv {
 public:
  explicit InvertedPendulum(const OptionValues& o)
      : MujocoEnv(inverted_pendulum_spec(), o, {.nq = 2, .nv = 1}), reset_noise_scale_(number(o, "reset_noise_scale")) {
    show(qpos());
    show(qvel());
  }

 private:
  void start(RandomStream& random) override {
    add_uniform(random, {-reset_noise_scale_, reset_noise_scale_}, qpos());
    add_uniform(random, {-reset_noise_scale_, reset_noise_scale_}, qvel());
  }

  Outcome play(std::span<const double> action) override {
    simulate(action);
    const bool fallen = std::abs(qpos()[1]) > 0.2;
    return {fallen ? 0.0 : 1.0, fallen};
  }

  double reset_noise_scale_;
};

const RegisterEnv kRegistered{inverted_pendulum_spec(),
                              [](const OptionValues& o) { return std::make_unique<InvertedPendulum>(o); }};

}  // namespace
}  // namespace gipo::inverted_pendulum
