#include <algorithm>
#include <limits>

#include "gipo/env/mujoco/planar_walker_env.h"

namespace gipo::hopper {
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

class Hopper final : public PlanarWalkerEnv {
 public:
  explicit Hopper(const OptionValues& o)
      : PlanarWalkerEnv(hopper_spec(), o), healthy_state_(range_of(o, "healthy_state_range")) {}

 private:
  bool healthy() const override {
    const auto inside = [&](double x) { return healthy_state_.inside(x); };
    return std::ranges::all_of(qpos().subspan(2), inside) && std::ranges::all_of(qvel(), inside) &&
           PlanarWalkerEnv::healthy();
  }

  Range healthy_state_;
};

const RegisterEnv kRegistered{hopper_spec(), [](const OptionValues& o) { return std::make_unique<Hopper>(o); }};

}  // namespace
}  // namespace gipo::hopper
