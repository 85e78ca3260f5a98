#include <algorithm>
#include <limits>

#include "gipo/env/mujoco/mujoco_env.h"

namespace gipo {
namespace {

using namespace task;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

EnvSpec hopper_spec() {
  return {
      .id = "Hopper-v5",
      .summary = "hop forward on one leg in a plane",
      .observation_size = 11,
      .action = ActionSpace::box(same(3, -1), same(3, 1)),
      .time_limit = 1000,
      .options = {xml_file("hopper.xml"), frame_skip(4),
                  weight("forward_reward_weight", 1, "Reward for a unit of forward velocity."),
                  weight("ctrl_cost_weight", 1e-3, "Cost of a unit of squared action."),
                  weight("healthy_reward", 1, "Reward of each step in which the hopper is healthy."),
                  flag("terminate_when_unhealthy", "End the episode when the hopper is not healthy."),
                  range("healthy_state_range", {-100, 100}, "All but x and z of a healthy hopper's state."),
                  range("healthy_z_range", {0.7, kInfinity}, "Height of a healthy hopper's torso."),
                  range("healthy_angle_range", {-0.2, 0.2}, "Angle of a healthy hopper's torso."), reset_noise(5e-3),
                  flag("exclude_current_positions_from_observation", "Leave the x position out.")}};
}

class Hopper final : public MujocoEnv {
 public:
  explicit Hopper(const OptionValues& o)
      : MujocoEnv(hopper_spec(), o, {.nq = 3, .nv = 1}),
        forward_reward_weight_(number(o, "forward_reward_weight")),
        ctrl_cost_weight_(number(o, "ctrl_cost_weight")),
        healthy_reward_(number(o, "healthy_reward")),
        reset_noise_scale_(number(o, "reset_noise_scale")),
        healthy_state_(range_of(o, "healthy_state_range")),
        healthy_z_(range_of(o, "healthy_z_range")),
        healthy_angle_(range_of(o, "healthy_angle_range")),
        terminate_when_unhealthy_(is_set(o, "terminate_when_unhealthy")) {
    show(qpos().subspan(is_set(o, "exclude_current_positions_from_observation") ? 1 : 0));
    show_clipped(qvel(), {-10, 10});
  }

 private:
  void start(RandomStream& random) override {
    add_uniform(random, {-reset_noise_scale_, reset_noise_scale_}, qpos());
    add_uniform(random, {-reset_noise_scale_, reset_noise_scale_}, qvel());
  }

  Outcome play(std::span<const double> action) override {
    const double x_before = qpos()[0];
    simulate(action);
    const double x_velocity = (qpos()[0] - x_before) / dt();

    const double rewards = forward_reward_weight_ * x_velocity + (healthy() ? healthy_reward_ : 0);
    return {rewards - control_cost(ctrl_cost_weight_), !healthy() && terminate_when_unhealthy_};
  }

  bool healthy() const {
    const auto inside = [&](double x) { return healthy_state_.inside(x); };
    return std::ranges::all_of(qpos().subspan(2), inside) && std::ranges::all_of(qvel(), inside) &&
           healthy_z_.inside(qpos()[1]) && healthy_angle_.inside(qpos()[2]);
  }

  double forward_reward_weight_, ctrl_cost_weight_, healthy_reward_, reset_noise_scale_;
  Range healthy_state_, healthy_z_, healthy_angle_;
  bool terminate_when_unhealthy_;
};

const RegisterEnv kRegistered{hopper_spec(), [](const OptionValues& o) { return std::make_unique<Hopper>(o); }};

}  // namespace
}  // namespace gipo
