#pragma once

#include "gipo/env/mujoco/mujoco_env.h"

namespace gipo {

// What the hopper and the two-legged walker share: they move in a plane, qpos begins with x, z and the torso's angle,
// and they are paid for going forward while they are healthy. Their options are declared with the names below.
class PlanarWalkerEnv : public MujocoEnv {
 protected:
  PlanarWalkerEnv(EnvSpec spec, const OptionValues& o)
      : MujocoEnv(std::move(spec), o, {.nq = 3, .nv = 1}),
        forward_reward_weight_(task::number(o, "forward_reward_weight")),
        ctrl_cost_weight_(task::number(o, "ctrl_cost_weight")),
        healthy_reward_(task::number(o, "healthy_reward")),
        reset_noise_scale_(task::number(o, "reset_noise_scale")),
        healthy_z_(task::range_of(o, "healthy_z_range")),
        healthy_angle_(task::range_of(o, "healthy_angle_range")),
        terminate_when_unhealthy_(task::is_set(o, "terminate_when_unhealthy")) {
    show(qpos().subspan(task::is_set(o, "exclude_current_positions_from_observation") ? 1 : 0));
    show_clipped(qvel(), {-10, 10});
  }

  virtual bool healthy() const { return healthy_z_.inside(qpos()[1]) && healthy_angle_.inside(qpos()[2]); }

 private:
  void start(RandomStream& random) final {
    task::add_uniform(random, {-reset_noise_scale_, reset_noise_scale_}, qpos());
    task::add_uniform(random, {-reset_noise_scale_, reset_noise_scale_}, qvel());
  }

  Outcome play(std::span<const double> action) final {
    const double x_before = qpos()[0];
    simulate(action);
    const double x_velocity = (qpos()[0] - x_before) / dt();

    const double rewards = forward_reward_weight_ * x_velocity + (healthy() ? healthy_reward_ : 0);
    return {rewards - control_cost(ctrl_cost_weight_), !healthy() && terminate_when_unhealthy_};
  }

  double forward_reward_weight_, ctrl_cost_weight_, healthy_reward_, reset_noise_scale_;
  Range healthy_z_, healthy_angle_;
  bool terminate_when_unhealthy_;
};

}  // namespace gipo
