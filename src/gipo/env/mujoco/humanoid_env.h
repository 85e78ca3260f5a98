#pragma once

#include <algorithm>
#include <vector>

#include "gipo/env/mujoco/mujoco_env.h"

namespace gipo {

// What the two humanoid tasks share: observation, start and costs. Their options are declared with the names below.
class HumanoidEnv : public MujocoEnv {
 public:
  static std::vector<EnvOption> observation_options() {
    return {task::flag("exclude_current_positions_from_observation", "Leave the x and y positions out."),
            task::flag("include_cinert_in_observation", "Show mass and inertia of each body."),
            task::flag("include_cvel_in_observation", "Show the velocity of each body."),
            task::flag("include_qfrc_actuator_in_observation", "Show the forces of the actuators on the joints."),
            task::flag("include_cfrc_ext_in_observation", "Show the contact forces on each body.")};
  }

 protected:
  HumanoidEnv(EnvSpec spec, const OptionValues& o)
      : MujocoEnv(std::move(spec), o, {.nq = 3, .nv = 6, .nbody = 2}),
        ctrl_cost_weight_(task::number(o, "ctrl_cost_weight")),
        reset_noise_scale_(task::number(o, "reset_noise_scale")) {
    use_contact_forces();
    show(qpos().subspan(task::is_set(o, "exclude_current_positions_from_observation") ? 2 : 0));
    show(qvel());
    // The world is body 0 and the first six velocities are the free root's: nothing is shown of them.
    if (task::is_set(o, "include_cinert_in_observation")) show(per_body(data().cinert, 10).subspan(10));
    if (task::is_set(o, "include_cvel_in_observation")) show(per_body(data().cvel, 6).subspan(6));
    if (task::is_set(o, "include_qfrc_actuator_in_observation")) show(per_velocity(data().qfrc_actuator).subspan(6));
    if (task::is_set(o, "include_cfrc_ext_in_observation")) show(per_body(data().cfrc_ext, 6).subspan(6));
  }

  // Of the controls in float64, unlike the other tasks' of the action.
  double ctrl_cost() const {
    return ctrl_cost_weight_ *
           sum_of_squares(std::span<const double>(data().ctrl, static_cast<std::size_t>(model().nu)));
  }
  double contact_cost(double weight, Range range) const {
    return std::clamp(weight * sum_of_squares(per_body(data().cfrc_ext, 6)), range.low, range.high);
  }

 private:
  void start(RandomStream& random) override {
    task::add_uniform(random, {-reset_noise_scale_, reset_noise_scale_}, qpos());
    task::add_uniform(random, {-reset_noise_scale_, reset_noise_scale_}, qvel());
  }

  double ctrl_cost_weight_, reset_noise_scale_;
};

}  // namespace gipo
