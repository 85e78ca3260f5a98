#include "gipo/bench/made_up.h"

#include <algorithm>

#include "gipo/policy/mlp_policy.h"

namespace gipo {
namespace {

constexpr std::int64_t kVersions = 5000;  // ages of the data, in updates
constexpr std::size_t kSegment = 64;

// Multiplications and additions of forward and backward; the input of the first layer needs no gradient.
double operations(const MlpShape& shape, std::size_t rows) {
  double products = 0, in = static_cast<double>(shape.input), first = 0;
  for (std::size_t i = 0; i <= shape.hidden.size(); ++i) {
    const double out =
        static_cast<double>(i < shape.hidden.size() ? shape.hidden[i] : static_cast<std::int64_t>(shape.output));
    products += in * out;
    if (i == 0) first = in * out;
    in = out;
  }
  return 2.0 * static_cast<double>(rows) * (3 * products - first);
}

// Half of the choices are valid, the one taken among them.
void make_up_mask(const DistributionSpec& distribution, std::span<const float> action, std::span<std::uint8_t> mask) {
  RandomStream random(2);
  std::size_t at = 0;
  for (std::size_t i = 0; i < action.size(); ++i) {
    const std::int64_t choices = distribution.choices[i % distribution.dims()];
    for (std::int64_t k = 0; k < choices; ++k) {
      mask[at++] = static_cast<float>(k) == action[i] || random.uniform() < 0.5;
    }
  }
}

}  // namespace

double update_operations(const ModelSpec& model, std::size_t rows, double policy_share) {
  const MlpShapes shapes = mlp_shapes(model);
  return policy_share * operations(shapes.policy, rows) + operations(shapes.critic, rows);
}

LearnerSetup made_up_setup(std::size_t observation_size, const ActionSpace& action, const PolicyOptions& policy,
                           std::size_t batch_size) {
  LearnerSetup setup;
  setup.model = make_model_spec(policy, {"made up", "", observation_size, action, 0});
  setup.learner.batch_size = static_cast<std::int64_t>(batch_size);
  setup.t_old = kVersions / 10;
  setup.window = kVersions;
  return setup;
}

LearnerSetup made_up_setup(std::size_t observation_size, const ActionSpace& action, const Widths& hidden,
                           std::size_t batch_size) {
  PolicyOptions policy;
  policy.hidden = hidden;
  return made_up_setup(observation_size, action, policy, batch_size);
}

LearnerSetup made_up_images(std::size_t batch_size) {
  LearnerSetup setup;
  EnvSpec env;
  env.id = "made up";
  env.action = ActionSpace::discrete(6);
  env.fields = {{"image", DType::kUint8, {4, 84, 84}}};
  PolicyOptions policy;
  policy.hidden = {512};
  policy.activation = Activation::kRelu;
  const std::vector<Encoder> encoders = choose_encoders("nature", env.fields, true);
  set_encoders(env, encoders);
  setup.model = make_model_spec(policy, env, encoders);
  setup.learner.batch_size = static_cast<std::int64_t>(batch_size);
  setup.learner.backend = "torch";
  setup.t_old = kVersions / 10;
  setup.window = kVersions;
  return setup;
}

Batch made_up_batch(std::size_t size, const ModelSpec& model) {
  const DistributionSpec& distribution = model.distribution;
  const auto burn_in = static_cast<std::size_t>(model.has_memory() ? model.options.burn_in : 0);
  Batch b(size, {model.fields, distribution.dims(), true, model.state_size(), {}, burn_in, kSegment});
  RandomStream random(1);
  if (model.fields[0].raw) {
    for (std::uint8_t& v : b.observation<std::uint8_t>()) v = static_cast<std::uint8_t>(random.below(256));
  } else {
    for (float& v : b.observation()) v = static_cast<float>(random.normal());
  }
  for (std::size_t i = 0; i < b.action().size(); ++i) {
    const auto choices = static_cast<std::uint64_t>(distribution.choices[i % distribution.dims()]);
    b.action()[i] = static_cast<float>(choices > 0 ? static_cast<double>(random.below(choices)) : random.normal());
    b.log_prob()[i] = static_cast<float>(-0.7 + 0.3 * random.normal());
  }
  if (distribution.masked) make_up_mask(distribution, b.action(), b.observation<std::uint8_t>(1));
  for (float& v : b.reward()) v = static_cast<float>(random.normal());
  for (std::size_t at = 0; at < size; at += kSegment) {
    const std::size_t length = std::min(kSegment, size - at);
    b.stretches.push_back({at, length, false});
    const auto first = -static_cast<std::int64_t>(kSegment + random.below(kVersions - kSegment));
    for (std::size_t i = 0; i < length; ++i) b.version()[at + i] = first + static_cast<std::int64_t>(i);
  }
  if (!model.has_memory()) return b;
  for (float& v : b.state()) v = static_cast<float>(random.normal());
  for (std::size_t i = 0; i < b.stretches.size(); ++i) {
    b.stretches[i].context_begin = b.rows() + i * burn_in;
    b.stretches[i].context = burn_in;
  }
  return b;
}

}  // namespace gipo
