#include <cmath>

#include "gipo/env/mujoco/mujoco_env.h"

namespace gipo::reacher {
namespace {

using namespace task;

EnvSpec reacher_spec() {
  return {.id = "Reacher-v5",
          .summary = "bring the tip of a two-link arm to a target",
          .observation_size = 10,
          .action = ActionSpace::box(same(2, -1), same(2, 1)),
          .time_limit = 50,
          .options = {xml_file("reacher.xml"), frame_skip(2),
                      weight("reward_dist_weight", 1, "Cost of a unit of distance to the target."),
                      weight("reward_control_weight", 1, "Cost of a unit of squared action.")}};
}

class Reacher final : public MujocoEnv {
 public:
  explicit Reacher(const OptionValues& o)
      : MujocoEnv(reacher_spec(), o, {.nq = 4, .nv = 4}),
        reward_dist_weight_(number(o, "reward_dist_weight")),
        reward_control_weight_(number(o, "reward_control_weight")),
        fingertip_(body("fingertip")),
        target_(body("target")) {
    own_spec().observation_size = 4 + (qpos().size() - 2) + 2 + 2;
  }

  void observe(std::span<double> observation) const override {
    GIPO_CHECK(observation.size() == spec().observation_size);
    double* out = observation.data();
    for (const double angle : qpos().first(2)) *out++ = std::cos(angle);
    for (const double angle : qpos().first(2)) *out++ = std::sin(angle);
    for (const double goal : qpos().subspan(2)) *out++ = goal;
    for (const double speed : qvel().first(2)) *out++ = speed;
    for (std::size_t i = 0; i < 2; ++i) *out++ = position(fingertip_)[i] - position(target_)[i];
  }

 private:
  void start(RandomStream& random) override {
    add_uniform(random, {-0.1, 0.1}, qpos());
    const std::span<double> goal = qpos().last(2);
    do {
      for (double& x : goal) x = random.uniform(-0.2, 0.2);
    } while (std::hypot(goal[0], goal[1]) >= 0.2);
    add_uniform(random, {-0.005, 0.005}, qvel().first(qvel().size() - 2));  // the goal stands still
  }

  Outcome play(std::span<const double> action) override {
    simulate(action);
    const double reward_dist = -distance(position(fingertip_), position(target_)) * reward_dist_weight_;
    return {reward_dist - control_cost(reward_control_weight_), false};
  }

  double reward_dist_weight_, reward_control_weight_;
  int fingertip_, target_;
};

const RegisterEnv kRegistered{reacher_spec(), [](const OptionValues& o) { return std::make_unique<Reacher>(o); }};

}  // namespace
}  // namespace gipo::reacher
