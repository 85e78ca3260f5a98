#include "gipo/policy/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/data/encode.h"
#include "gipo/io/bytes.h"

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

std::size_t count_parameters(const MlpShape& shape) { return Mlp<float>(shape, 0).parameter_count(); }

}  // namespace

std::size_t ModelSpec::policy_parameters() const {
  return count_parameters(policy_shape) + distribution.extra_parameters();
}
std::size_t ModelSpec::critic_parameters() const { return count_parameters(critic_shape); }

ModelSpec make_model_spec(const PolicyOptions& options, const EnvSpec& env) {
  ModelSpec spec;
  spec.options = options;
  spec.observation_size = env.observation_size;
  spec.privileged = critic_width(env.fields);
  const std::size_t read = spec.observation_size - spec.privileged;  // by the policy
  spec.action = env.action;
  spec.spaces = env.spaces;
  spec.distribution = make_distribution(options, env);
  GIPO_CHECK(options.shared >= 0 && static_cast<std::size_t>(options.shared) <= options.hidden.size());
  spec.shared = static_cast<std::size_t>(options.shared);
  spec.policy_shape = {read, options.hidden, spec.distribution.outputs(), options.activation, options.layer_norm};
  const std::size_t seen = spec.shared > 0 ? static_cast<std::size_t>(options.hidden[spec.shared - 1]) : read;
  const Widths own(options.hidden.begin() + options.shared, options.hidden.end());
  spec.critic_shape = {seen + spec.privileged, options.critic_hidden.value_or(own), 1, options.activation,
                       options.layer_norm};
  spec.uniform_init = options.init == FirstWeights::kUniform;
  spec.init_log_std = options.init_log_std;
  return spec;
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

namespace {

template <class T>
void initialise(const ModelSpec& spec, const Mlp<T>& mlp, std::span<T> parameters, RandomStream& random,
                double output_gain) {
  if (spec.uniform_init) return mlp.initialise_uniform(parameters, random);
  mlp.initialise(parameters, random, output_gain);
}

}  // namespace

template <class T>
void initialise_policy(const ModelSpec& spec, std::span<T> parameters, RandomStream& random) {
  const Mlp<T> mlp(spec.policy_shape, 0);
  const std::size_t network = mlp.parameter_count();
  initialise(spec, mlp, parameters.first(network), random, 0.01);
  std::fill(parameters.begin() + static_cast<std::ptrdiff_t>(network), parameters.end(), T(spec.init_log_std));
}

template <class T>
void initialise_critic(const ModelSpec& spec, std::span<T> parameters, RandomStream& random) {
  initialise(spec, Mlp<T>(spec.critic_shape, 0), parameters, random, 1.0);
}

template void initialise_policy<float>(const ModelSpec&, std::span<float>, RandomStream&);
template void initialise_policy<double>(const ModelSpec&, std::span<double>, RandomStream&);
template void initialise_critic<float>(const ModelSpec&, std::span<float>, RandomStream&);
template void initialise_critic<double>(const ModelSpec&, std::span<double>, RandomStream&);

Weights initial_weights(const ModelSpec& spec, RandomStream random) {
  Weights weights;
  weights.policy.resize(spec.policy_parameters());
  weights.critic.resize(spec.critic_parameters());
  weights.scale = ObservationScale::identity(spec.observation_size);
  initialise_policy<float>(spec, weights.policy, random);
  initialise_critic<float>(spec, weights.critic, random);
  return weights;
}

void Weights::save(ByteWriter& out) const {
  out.value(version);
  out.value(policy_version);
  for (const std::vector<float>* values : {&policy, &critic, &scale.mean, &scale.inverse_std}) out.array(*values);
  out.value(scale.limit);
  returns.save(out);
}

void Weights::load(ByteReader& in) {
  version = in.value<std::int64_t>();
  policy_version = in.value<std::int64_t>();
  for (std::vector<float>* values : {&policy, &critic, &scale.mean, &scale.inverse_std}) {
    in.array_into(std::span<float>(*values));
  }
  scale.limit = in.value<float>();
  returns.load(in);
  if (version < 0 || policy_version < 0 || policy_version > version || !(scale.limit > 0)) {
    throw Error("saved weights: their versions or their limit are damaged");
  }
}

Inference::Inference(const ModelSpec& spec, std::size_t max_rows)
    : observation_size_(spec.observation_size),
      shared_(spec.shared),
      policy_(spec.policy_shape, max_rows),
      critic_(spec.critic_shape, max_rows),
      privileged_(spec.privileged),
      seen_(spec.critic_shape.input - spec.privileged),
      scaled_(max_rows * spec.observation_size),
      policy_input_(privileged_ > 0 ? max_rows * spec.policy_shape.input : 0),
      critic_input_(privileged_ > 0 ? max_rows * spec.critic_shape.input : 0) {}

double Inference::bytes_needed(const ModelSpec& spec, std::size_t max_rows) {
  return Mlp<float>::bytes_needed(spec.policy_shape, max_rows) + Mlp<float>::bytes_needed(spec.critic_shape, max_rows) +
         4.0 * static_cast<double>(max_rows) * static_cast<double>(spec.observation_size);
}

const float* Inference::features(const Weights& weights, std::span<const float> observations) {
  weights.scale.apply(observations, scaled_.data());
  const std::size_t rows = observations.size() / observation_size_;
  const float* input = scaled_.data();
  if (privileged_ > 0) {
    const std::size_t read = observation_size_ - privileged_;
    copy_columns(input, observation_size_, 0, read, rows, policy_input_.data(), read);
    input = policy_input_.data();
  }
  return policy_.forward_layers(0, shared_, std::span<const float>(weights.policy).first(policy_.parameter_count()),
                                input, rows,
                                std::exchange(shared_version_, weights.policy_version) != weights.policy_version);
}

DistributionView<float> Inference::policy(const Weights& weights, std::span<const float> observations) {
  const std::span<const float> all(weights.policy);
  const std::size_t network = policy_.parameter_count();
  const float* x = features(weights, observations);
  const float* out =
      policy_.forward_layers(shared_, policy_.layers(), all.first(network), x, observations.size() / observation_size_,
                             std::exchange(policy_version_, weights.policy_version) != weights.policy_version);
  return {out, all.subspan(network)};
}

const float* Inference::values(const Weights& weights, std::span<const float> observations) {
  const std::size_t rows = observations.size() / observation_size_;
  const float* input = features(weights, observations);
  if (privileged_ > 0) {
    const std::size_t stride = seen_ + privileged_, read = observation_size_ - privileged_;
    copy_columns(input, seen_, 0, seen_, rows, critic_input_.data(), stride);
    copy_columns(scaled_.data(), observation_size_, read, privileged_, rows, critic_input_.data() + seen_, stride);
    input = critic_input_.data();
  }
  return critic_.forward(weights.critic, input, rows,
                         std::exchange(critic_version_, weights.version) != weights.version);
}

}  // namespace gipo
