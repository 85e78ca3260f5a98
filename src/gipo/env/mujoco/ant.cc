#include <algorithm>
#include <cmath>

#include "gipo/env/mujoco/mujoco_env.h"

namespace gipo::ant {
namespace {

using namespace task;

EnvOption main_body() {
  EnvOption option{"main_body", std::int64_t{1}, "Body whose velocity is rewarded: its number or its name.", 0};
  option.or_text = true;
  return option;
}

EnvSpec ant_spec() {
  return {.id = "Ant-v5",
          .summary = "walk forward on four legs",
          .observation_size = 105,
          .action = ActionSpace::box(same(8, -1), same(8, 1)),
          .time_limit = 1000,
          .options = {xml_file("ant.xml"), frame_skip(5),
                      weight("forward_reward_weight", 1, "Reward for a unit of forward velocity."),
                      weight("ctrl_cost_weight", 0.5, "Cost of a unit of squared action."),
                      weight("contact_cost_weight", 5e-4, "Cost of a unit of squared contact force."),
                      weight("healthy_reward", 1, "Reward of each step in which the ant is healthy."), main_body(),
                      flag("terminate_when_unhealthy", "End the episode when the ant is not healthy."),
                      range("healthy_z_range", {0.2, 1}, "Height of the torso of a healthy ant."),
                      range("contact_force_range", {-1, 1}, "Contact forces are clipped to this."), reset_noise(0.1),
                      flag("exclude_current_positions_from_observation", "Leave the x and y positions out."),
                      flag("include_cfrc_ext_in_observation", "Show the contact forces on each body.")}};
}

class Ant final : public MujocoEnv {
 public:
  explicit Ant(const OptionValues& o)
      : MujocoEnv(ant_spec(), o, {.nq = 3, .nv = 1, .nbody = 2}),
        forward_reward_weight_(number(o, "forward_reward_weight")),
        ctrl_cost_weight_(number(o, "ctrl_cost_weight")),
        contact_cost_weight_(number(o, "contact_cost_weight")),
        healthy_reward_(number(o, "healthy_reward")),
        reset_noise_scale_(number(o, "reset_noise_scale")),
        healthy_z_(range_of(o, "healthy_z_range")),
        contact_force_(range_of(o, "contact_force_range")),
        terminate_when_unhealthy_(is_set(o, "terminate_when_unhealthy")),
        main_body_(body(o.at("main_body"))) {
    use_contact_forces();
    show(qpos().subspan(is_set(o, "exclude_current_positions_from_observation") ? 2 : 0));
    show(qvel());
    // The world is body 0: nothing is shown of it.
    if (is_set(o, "include_cfrc_ext_in_observation")) show_clipped(contact_forces().subspan(6), contact_force_);
  }

 private:
  void start(RandomStream& random) override {
    add_uniform(random, {-reset_noise_scale_, reset_noise_scale_}, qpos());
    add_normal(random, reset_noise_scale_, qvel());
  }

  Outcome play(std::span<const double> action) override {
    const double x_before = position(main_body_)[0];
    simulate(action);
    const double x_velocity = (position(main_body_)[0] - x_before) / dt();

    const double rewards = x_velocity * forward_reward_weight_ + (healthy() ? healthy_reward_ : 0);
    const double costs = control_cost(ctrl_cost_weight_) + contact_cost();
    return {rewards - costs, !healthy() && terminate_when_unhealthy_};
  }

  bool healthy() const { return healthy_z_.low <= qpos()[2] && qpos()[2] <= healthy_z_.high; }

  std::span<const double> contact_forces() const { return per_body(data().cfrc_ext, 6); }
  double contact_cost() const {
    const std::span<const double> forces = contact_forces();
    return contact_cost_weight_ * numpy_sum<double>(0, forces.size(), [&](std::size_t i) {
             const double force = std::clamp(forces[i], contact_force_.low, contact_force_.high);
             return force * force;
           });
  }

  double forward_reward_weight_, ctrl_cost_weight_, contact_cost_weight_, healthy_reward_, reset_noise_scale_;
  Range healthy_z_, contact_force_;
  bool terminate_when_unhealthy_;
  int main_body_;
};

const RegisterEnv kRegistered{ant_spec(), [](const OptionValues& o) { return std::make_unique<Ant>(o); }};

}  // namespace
}  // namespace gipo::ant
