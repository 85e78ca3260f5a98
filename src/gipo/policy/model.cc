#include "gipo/policy/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/data/encode.h"

namespace gipo {
namespace {

// Whether every dimension that is a number has bounds.
bool bounded(const ActionSpace& action) {
  for (std::size_t d = 0; d < action.dims(); ++d) {
    if (action.continuous(d) && !(std::isfinite(action.low[d]) && std::isfinite(action.high[d]))) return false;
  }
  return true;
}

// Which of the distributions that options name fit actions of this kind.
void check_fit(const PolicyOptions& options, const EnvSpec& env) {
  const DistributionChoice wanted = options.distribution;
  const auto refuse_if = [&](bool unfit, const char* why) {
    if (unfit)
      throw Error(fmt::format("policy.distribution = \"{}\" does not fit {}: {}", word_of(wanted), env.id, why));
  };
  switch (env.action.kind) {
    case ActionSpace::Kind::kDiscrete:
    case ActionSpace::Kind::kMultiDiscrete:
      refuse_if(wanted == DistributionChoice::kGaussian || wanted == DistributionChoice::kBinned,
                "its actions are discrete; wanted auto or categorical");
      break;
    case ActionSpace::Kind::kBox:
      refuse_if(wanted == DistributionChoice::kCategorical,
                "its actions are continuous; wanted auto, gaussian or binned");
      refuse_if(wanted == DistributionChoice::kBinned && !bounded(env.action),
                "its action range is unbounded; wanted auto or gaussian");
      break;
    case ActionSpace::Kind::kComposed:
      refuse_if(wanted == DistributionChoice::kGaussian, "a part of its actions is a choice; wanted auto or binned");
      refuse_if(wanted == DistributionChoice::kCategorical, "a part of its actions is a number; wanted auto or binned");
      refuse_if(wanted == DistributionChoice::kBinned && !bounded(env.action),
                "its action range is unbounded; wanted auto");
      break;
  }
}

// Whether the task says which choices are valid.
bool has_mask(const PolicyOptions& options, const EnvSpec& env) {
  std::size_t values = 0, choices = 0;
  for (const Field& field : env.fields) values += field.role == Role::kMask ? field.values() : 0;
  if (values == 0) return false;
  for (const std::int64_t n : env.action.choices) choices += static_cast<std::size_t>(n);
  if (values != choices) {
    throw Error(
        fmt::format("{}: its mask of valid actions has {} values; wanted {}, one for each choice of its actions",
                    env.id, values, choices));
  }
  if (options.distribution == DistributionChoice::kBinned) {
    throw Error(
        fmt::format("policy.distribution = \"binned\" does not fit {}: its mask of valid actions says nothing of "
                    "bins; wanted auto",
                    env.id));
  }
  return true;
}

DistributionSpec make_distribution(const PolicyOptions& options, const EnvSpec& env) {
  check_fit(options, env);
  DistributionSpec spec;
  spec.choices = env.action.choices;
  spec.choices.resize(env.action.dims());  // numbers of a box: gaussians
  if (options.distribution == DistributionChoice::kBinned) {
    std::ranges::replace(spec.choices, std::int64_t{0}, options.bins);
  }
  spec.masked = has_mask(options, env);
  return spec;
}

}  // namespace

ModelSpec make_model_spec(const PolicyOptions& options, const EnvSpec& env, std::vector<Encoder> encoders) {
  ModelSpec spec;
  spec.encoders = std::move(encoders);
  spec.options = options;
  spec.fields = env.fields.empty() ? plain_fields(env.observation_size) : env.fields;
  spec.observation_size = env.observation_size;
  spec.privileged = critic_width(env.fields);
  spec.action = env.action;
  spec.spaces = env.spaces;
  spec.distribution = make_distribution(options, env);
  return spec;
}

void set_encoders(EnvSpec& env, const std::vector<Encoder>& encoders) {
  for (std::size_t f = 0; f < env.fields.size(); ++f) env.fields[f].raw = encoders[f] != Encoder::kFloats;
  env.observation_size = floats_of(env.fields);
}

void add_mask(ModelSpec& spec) {
  spec.distribution.masked = true;
  const auto choices = static_cast<std::int64_t>(spec.distribution.mask_size());
  spec.fields.push_back({"action_mask", DType::kUint8, {choices}, Role::kMask});
  if (!spec.encoders.empty()) spec.encoders.push_back(Encoder::kFloats);
}

void to_env_action(const ModelSpec& spec, std::span<const float> action, std::span<double> env_action) {
  for (std::size_t d = 0; d < action.size(); ++d) {
    const double a = action[d];
    if (!spec.action.continuous(d)) {
      env_action[d] = a;
      continue;
    }
    const double low = spec.action.low[d], high = spec.action.high[d];
    if (const std::int64_t bins = spec.distribution.choices[d]; bins > 0) {
      // The last bin is the bound itself, also where rounding would put it beyond.
      env_action[d] = std::min(low + (high - low) * a / static_cast<double>(bins - 1), high);
    } else if (std::isfinite(low) && std::isfinite(high)) {
      env_action[d] = std::clamp(low + (high - low) * 0.5 * (a + 1.0), low, high);
    } else {
      env_action[d] = std::clamp(a, low, high);
    }
  }
}

}  // namespace gipo
