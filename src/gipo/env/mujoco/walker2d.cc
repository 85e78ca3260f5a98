#include "gipo/env/mujoco/planar_walker_env.h"

namespace gipo::walker2d {
namespace {

using namespace task;

EnvSpec walker2d_spec() {
  return {.id = "Walker2d-v5",
          .summary = "walk forward on two legs in a plane",
          .observation_size = 17,
          .action = ActionSpace::box(same(6, -1), same(6, 1)),
          .time_limit = 1000,
          .options = {xml_file("walker2d_v5.xml"), frame_skip(4),
                      weight("forward_reward_weight", 1, "Reward for a unit of forward velocity."),
                      weight("ctrl_cost_weight", 1e-3, "Cost of a unit of squared action."),
                      weight("healthy_reward", 1, "Reward of each step in which the walker is healthy."),
                      flag("terminate_when_unhealthy", "End the episode when the walker is not healthy."),
                      range("healthy_z_range", {0.8, 2}, "Height of a healthy walker's torso."),
                      range("healthy_angle_range", {-1, 1}, "Angle of a healthy walker's torso."), reset_noise(5e-3),
                      flag("exclude_current_positions_from_observation", "Leave the x position out.")}};
}

class Walker2d final : public PlanarWalkerEnv {
 public:
  explicit Walker2d(const OptionValues& o) : PlanarWalkerEnv(walker2d_spec(), o) {}
};

const RegisterEnv kRegistered{walker2d_spec(), [](const OptionValues& o) { return std::make_unique<Walker2d>(o); }};

}  // namespace
}  // namespace gipo::walker2d
