#include "gipo/remote/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gipo/core/error.h"
#include "gipo/data/wire.h"
#include "gipo/plan/option_table.h"
#include "gipo/plan/plan.h"
#include "gipo/policy/weights.h"

namespace gipo {
namespace {

constexpr std::size_t kMostRounds = 16;
constexpr std::size_t kUsualBytes = 1 << 20;
constexpr std::size_t kReportText = 64 << 10;  // head, faults in words

}  // namespace

std::string agreement_of(const Plan& plan) {
  const TransitionLayout layout(plan.transition());
  std::string text =
      fmt::format("task: {}\nengine: {}\nenvironments of an actor: {}\nlongest segment: {}\nspaces: {}\n", plan.env.id,
                  plan.env.engine, plan.envs_per_actor, plan.segment_length, plan.env.spaces);
  for (std::size_t c = 0; c < layout.columns.size(); ++c) {
    text += fmt::format("column {}: {} bytes\n", layout.columns[c].name, layout.row_bytes[c]);
  }
  text += fmt::format("columns: {:08x}\n", layout.fingerprint);
  for (const Part part : {Part::kPolicy, Part::kCritic}) {
    for (const TensorSlice& t : tensors_of(plan.model, part)) {
      text += fmt::format("tensor {}: {}\n", t.name, fmt::join(t.shape, " x "));
    }
  }
  return text;
}

std::string disagreement(const std::string& learner, const std::string& actor) {
  std::istringstream here(learner), there(actor);
  std::string wanted, came;
  while (true) {
    const bool more_here = static_cast<bool>(std::getline(here, wanted)),
               more_there = static_cast<bool>(std::getline(there, came));
    if (!more_here && !more_there) return {};
    if (!more_here) wanted = "nothing";
    if (!more_there) came = "nothing";
    if (wanted != came) return fmt::format("the learner has \"{:.300}\", the actor \"{:.300}\"", wanted, came);
  }
}

std::string edge_description(const Plan& plan) {
  const ModelSpec& model = plan.model;
  const auto refuse = [](const std::string& why) {
    throw Error(fmt::format("RemoteActor cannot work for this run: {}; use gipo actor", why));
  };
  if (!is_plain(model.fields)) refuse("its observations are not one vector of numbers");
  if (model.action.kind == ActionSpace::Kind::kComposed) refuse("its actions are choices beside numbers");
  if (model.has_memory()) refuse("its policy has a memory (policy.memory)");
  if (model.distribution.masked) refuse("its actions have a mask (env.mask)");
  if (plan.config.advantage.mode == AdvantageMode::kStored) {
    refuse("advantages are made at collection (advantage.mode = \"stored\")");
  }
  if (plan.config.env.normalise_rewards) refuse("rewards are scaled by their returns (env.normalise_rewards)");
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const TensorSlice& t : tensors_of(model, Part::kPolicy)) {
    tensors.push_back({{"name", t.name}, {"offset", t.offset}, {"shape", t.shape}});
  }
  const TransitionLayout layout(plan.transition());
  // JSON has no infinity: null is one.
  const nlohmann::ordered_json out = {{"agreement", agreement_of(plan)},
                                      {"task", plan.env.id},
                                      {"envs_per_actor", plan.envs_per_actor},
                                      {"envs", plan.envs()},
                                      {"segment_length", plan.segment_length},
                                      {"reward_scale", plan.config.env.reward_scale},
                                      {"observation_size", model.observation_size},
                                      {"fingerprint", layout.fingerprint},
                                      {"activation", model.options.activation == Activation::kTanh ? "tanh" : "relu"},
                                      {"layer_norm", model.options.layer_norm},
                                      {"action", name_of(model.action.kind)},
                                      {"choices", model.distribution.choices},
                                      {"low", model.action.low},
                                      {"high", model.action.high},
                                      {"tensors", tensors}};
  return out.dump();
}

std::string config_for_actors(const Plan& plan) {
  Config config = plan.config;
  config.env.python.clear();
  config.env.workers = {};
  config.learner.device = LearnerOptions().device;  // the learner's own
  config.learner.precision = LearnerOptions().precision;
  return config_to_toml(config);
}

std::size_t report_rounds(const Plan& plan) {
  const std::size_t step = TransitionLayout(plan.transition()).step_bytes() * plan.envs_per_actor;
  return std::clamp<std::size_t>(kUsualBytes / std::max<std::size_t>(step, 1), 1,
                                 std::min(kMostRounds, plan.segment_length));
}

// Most where each step is a segment and an episode of its own. A segment that began before brings its older steps, once
// for each environment.
std::size_t most_report_bytes(const Plan& plan, std::size_t rounds) {
  const TransitionLayout layout(plan.transition());
  constexpr std::size_t kEpisode = 56;
  return kReportText +
         plan.envs_per_actor * ((rounds + 1) * (wire_bytes(layout, 1, layout.spec.context(), true) + kEpisode + 8) +
                                wire_bytes(layout, plan.segment_length, layout.spec.context(), true));
}

}  // namespace gipo
