#include "gipo/run/first_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "gipo/core/error.h"
#include "gipo/run/export.h"

namespace gipo {
namespace {

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

Shapes shapes_of(const ModelSpec& model) {
  Shapes all = {{"observation.mean", {static_cast<std::int64_t>(model.observation_size)}}};
  for (const Part part : {Part::kPolicy, Part::kCritic}) {
    for (const TensorSlice& s : tensors_of(model, part)) all[s.name] = s.shape;
  }
  return all;
}

// What keeps weights of `there` from being those of a model `here`; empty: nothing.
std::string misfit(const ModelSpec& there, const ModelSpec& here) {
  const Shapes given = shapes_of(there), wanted = shapes_of(here);
  for (const auto& [name, shape] : wanted) {
    const auto it = given.find(name);
    if (it == given.end()) return fmt::format("it has no tensor {}, which is [{}] here", name, fmt::join(shape, ", "));
    if (it->second == shape) continue;
    return fmt::format("its tensor {} is [{}], here it is [{}]", name, fmt::join(it->second, ", "),
                       fmt::join(shape, ", "));
  }
  for (const auto& [name, shape] : given) {
    if (!wanted.contains(name))
      return fmt::format("it has a tensor {} [{}], which is none here", name, fmt::join(shape, ", "));
  }
  if (there.distribution.choices != here.distribution.choices) {
    return fmt::format("its choices per action dimension are [{}], here they are [{}]",
                       fmt::join(there.distribution.choices, ", "), fmt::join(here.distribution.choices, ", "));
  }
  if (there.options.activation != here.options.activation) {
    return fmt::format("its policy.activation is {}, here it is {}", word_of(there.options.activation),
                       word_of(here.options.activation));
  }
  return {};
}

}  // namespace

std::shared_ptr<const Weights> first_weights(const Plan& plan, const Origins& origins) {
  const std::string& from = plan.config.run.init_from;
  if (from.empty()) return {};
  const auto refuse = [&](const std::string& why) {
    throw Error(
        fmt::format("{}: run.init_from = \"{}\" is not accepted: {}", origin_of(origins, "run.init_from"), from, why));
  };
  SavedPolicy saved;
  try {
    saved = load_policy(from);
  } catch (const Error& e) {
    refuse(e.what());
  }
  if (const std::string why = misfit(saved.model, plan.model); !why.empty()) refuse(why);
  if (plan.config.env.normalise_observations && !saved.weights.scale.is_set()) {
    refuse("its observations are not scaled: wanted env.normalise_observations = false");
  }
  saved.weights.version = saved.weights.policy_version = 0;
  return std::make_shared<const Weights>(std::move(saved.weights));
}

}  // namespace gipo
