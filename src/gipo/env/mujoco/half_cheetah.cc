#include "gipo/env/mujoco/mujoco_env.h"

namespace gipo::half_cheetah {
namespace {

using namespace task;

EnvSpec half_cheetah_spec() {
  return {.id = "HalfCheetah-v5",
          .summary = "run forward on two legs in a plane",
          .observation_size = 17,
          .action = ActionSpace::box(same(6, -1), same(6, 1)),
          .time_limit = 1000,
          .options = {xml_file("half_cheetah.xml"), frame_skip(5),
                      weight("forward_reward_weight", 1, "Reward for a unit of forward velocity."),
                      weight("ctrl_cost_weight", 0.1, "Cost of a unit of squared action."), reset_noise(0.1),
                      flag("exclude_current_positions_from_observation", "Leave the x position out.")}};
}

class HalfCheetah final : public MujocoEnv {
 public:
  explicit HalfCheetah(const OptionValues& o)
      : MujocoEnv(half_cheetah_spec(), o, {.nq = 1, .nv = 1}),
        forward_reward_weight_(number(o, "forward_reward_weight")),
        ctrl_cost_weight_(number(o, "ctrl_cost_weight")),
        reset_noise_scale_(number(o, "reset_noise_scale")) {
    show(qpos().subspan(is_set(o, "exclude_current_positions_from_observation") ? 1 : 0));
    show(qvel());
  }

 private:
  void start(RandomStream& random) override {
    add_uniform(random, {-reset_noise_scale_, reset_noise_scale_}, qpos());
    add_normal(random, reset_noise_scale_, qvel());
  }

  Outcome play(std::span<const double> action) override {
    const double x_before = qpos()[0];
    simulate(action);
    const double x_velocity = (qpos()[0] - x_before) / dt();
    return {forward_reward_weight_ * x_velocity - control_cost(ctrl_cost_weight_), false};
  }

  double forward_reward_weight_, ctrl_cost_weight_, reset_noise_scale_;
};

const RegisterEnv kRegistered{half_cheetah_spec(),
                              [](const OptionValues& o) { return std::make_unique<HalfCheetah>(o); }};

}  // namespace
}  // namespace gipo::half_cheetah
