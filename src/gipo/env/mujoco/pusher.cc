#include <cmath>

#include "gipo/env/mujoco/mujoco_env.h"

namespace gipo::pusher {
namespace {

using namespace task;

constexpr std::size_t kArm = 7;  // joints of the arm, which come first

EnvSpec pusher_spec() {
  return {.id = "Pusher-v5",
          .summary = "push a cylinder to a goal with a robot arm",
          .observation_size = 23,
          .action = ActionSpace::box(same(7, -2), same(7, 2)),
          .time_limit = 100,
          .options = {xml_file("pusher_v5.xml"), frame_skip(5),
                      weight("reward_near_weight", 0.5, "Cost of a unit of distance from the arm to the object."),
                      weight("reward_dist_weight", 1, "Cost of a unit of distance from the object to the goal."),
                      weight("reward_control_weight", 0.1, "Cost of a unit of squared action.")}};
}

class Pusher final : public MujocoEnv {
 public:
  explicit Pusher(const OptionValues& o)
      : MujocoEnv(pusher_spec(), o, {.nq = kArm + 4, .nv = kArm + 4}),
        reward_near_weight_(number(o, "reward_near_weight")),
        reward_dist_weight_(number(o, "reward_dist_weight")),
        reward_control_weight_(number(o, "reward_control_weight")),
        tips_arm_(body("tips_arm")),
        object_(body("object")),
        goal_(body("goal")) {
    show(qpos().first(kArm));
    show(qvel().first(kArm));
    for (const int b : {tips_arm_, object_, goal_}) show(position(b));
  }

 private:
  void start(RandomStream& random) override {
    const std::span<double> object = qpos().last(4).first(2), goal = qpos().last(2);
    do {
      object[0] = random.uniform(-0.3, 0);
      object[1] = random.uniform(-0.2, 0.2);
    } while (std::hypot(object[0], object[1]) <= 0.17);
    goal[0] = goal[1] = 0;
    add_uniform(random, {-0.005, 0.005}, qvel().first(qvel().size() - 4));  // object and goal stand still
  }

  Outcome play(std::span<const double> action) override {
    simulate(action);
    const double reward_near = -distance(position(object_), position(tips_arm_)) * reward_near_weight_;
    const double reward_dist = -distance(position(object_), position(goal_)) * reward_dist_weight_;
    return {reward_dist - control_cost(reward_control_weight_) + reward_near, false};
  }

  double reward_near_weight_, reward_dist_weight_, reward_control_weight_;
  int tips_arm_, object_, goal_;
};

const RegisterEnv kRegistered{pusher_spec(), [](const OptionValues& o) { return std::make_unique<Pusher>(o); }};

}  // namespace
}  // namespace gipo::pusher
