#include <limits>

#include "gipo/env/mujoco/humanoid_env.h"

namespace gipo::humanoid {
namespace {

using namespace task;

EnvSpec humanoid_spec() {
  EnvSpec spec{
      .id = "Humanoid-v5",
      .summary = "walk forward on two legs without falling",
      .observation_size = 348,
      .action = ActionSpace::box(same(17, -0.4f), same(17, 0.4f)),
      .time_limit = 1000,
      .options = {xml_file("humanoid.xml"), frame_skip(5),
                  weight("forward_reward_weight", 1.25, "Reward for a unit of forward velocity."),
                  weight("ctrl_cost_weight", 0.1, "Cost of a unit of squared control."),
                  weight("contact_cost_weight", 5e-7, "Cost of a unit of squared contact force."),
                  range("contact_cost_range", {-std::numeric_limits<double>::infinity(), 10},
                        "The contact cost is clipped to this."),
                  weight("healthy_reward", 5, "Reward of each step in which the humanoid is healthy."),
                  flag("terminate_when_unhealthy", "End the episode when the humanoid is not healthy."),
                  range("healthy_z_range", {1, 2}, "Height of a healthy humanoid's torso."), reset_noise(1e-2)}};
  for (EnvOption& option : HumanoidEnv::observation_options()) spec.options.push_back(std::move(option));
  return spec;
}

class Humanoid final : public HumanoidEnv {
 public:
  explicit Humanoid(const OptionValues& o)
      : HumanoidEnv(humanoid_spec(), o),
        forward_reward_weight_(number(o, "forward_reward_weight")),
        contact_cost_weight_(number(o, "contact_cost_weight")),
        healthy_reward_(number(o, "healthy_reward")),
        contact_cost_range_(range_of(o, "contact_cost_range")),
        healthy_z_(range_of(o, "healthy_z_range")),
        terminate_when_unhealthy_(is_set(o, "terminate_when_unhealthy")),
        total_mass_(numpy_sum<double>(0, per_body(model().body_mass, 1).size(),
                                      [&](std::size_t i) { return model().body_mass[i]; })) {}

 private:
  Outcome play(std::span<const double> action) override {
    const double x_before = centre_of_mass_x();
    simulate(action);
    const double x_velocity = (centre_of_mass_x() - x_before) / dt();

    const double rewards = forward_reward_weight_ * x_velocity + (healthy() ? healthy_reward_ : 0);
    const double costs = ctrl_cost() + contact_cost(contact_cost_weight_, contact_cost_range_);
    return {rewards - costs, !healthy() && terminate_when_unhealthy_};
  }

  bool healthy() const { return healthy_z_.inside(qpos()[2]); }

  double centre_of_mass_x() const {
    double sum = 0;
    for (int b = 0; b < model().nbody; ++b) sum += model().body_mass[b] * data().xipos[3 * b];
    return sum / total_mass_;
  }

  double forward_reward_weight_, contact_cost_weight_, healthy_reward_;
  Range contact_cost_range_, healthy_z_;
  bool terminate_when_unhealthy_;
  double total_mass_;
};

const RegisterEnv kRegistered{humanoid_spec(), [](const OptionValues& o) { return std::make_unique<Humanoid>(o); }};

}  // namespace
}  // namespace gipo::humanoid
