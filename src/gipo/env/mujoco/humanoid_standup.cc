#include <limits>

#include "gipo/env/mujoco/humanoid_env.h"

namespace gipo::humanoid_standup {
namespace {

using namespace task;

EnvSpec humanoid_standup_spec() {
  EnvSpec spec{.id = "HumanoidStandup-v5",
               .summary = "stand up from lying on the back",
               .observation_size = 348,
               .action = ActionSpace::box(same(17, -0.4f), same(17, 0.4f)),
               .time_limit = 1000,
               .options = {xml_file("humanoidstandup.xml"), frame_skip(5),
                           weight("uph_cost_weight", 1, "Accepted as Gymnasium does, which makes no use of it."),
                           weight("ctrl_cost_weight", 0.1, "Cost of a unit of squared control."),
                           weight("impact_cost_weight", 0.5e-6, "Cost of a unit of squared contact force."),
                           range("impact_cost_range", {-std::numeric_limits<double>::infinity(), 10},
                                 "The impact cost is clipped to this."),
                           reset_noise(1e-2)}};
  for (EnvOption& option : HumanoidEnv::observation_options()) spec.options.push_back(std::move(option));
  return spec;
}

class HumanoidStandup final : public HumanoidEnv {
 public:
  explicit HumanoidStandup(const OptionValues& o)
      : HumanoidEnv(humanoid_standup_spec(), o),
        impact_cost_weight_(number(o, "impact_cost_weight")),
        impact_cost_range_(range_of(o, "impact_cost_range")) {}

 private:
  Outcome play(std::span<const double> action) override {
    simulate(action);
    const double height = qpos()[2] / model().opt.timestep;
    return {height - ctrl_cost() - contact_cost(impact_cost_weight_, impact_cost_range_) + 1, false};
  }

  double impact_cost_weight_;
  Range impact_cost_range_;
};

const RegisterEnv kRegistered{humanoid_standup_spec(),
                              [](const OptionValues& o) { return std::make_unique<HumanoidStandup>(o); }};

}  // namespace
}  // namespace gipo::humanoid_standup
