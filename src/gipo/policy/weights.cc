#include "gipo/policy/weights.h"

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/policy/policy.h"

namespace gipo {

void Weights::save(ByteWriter& out, bool with_critic) const {
  out.value(version);
  out.value(policy_version);
  for (const std::span<const float> values :
       {std::span<const float>(policy), with_critic ? std::span<const float>(critic) : std::span<const float>(),
        std::span<const float>(scale.mean), std::span<const float>(scale.inverse_std)}) {
    out.array(values);
  }
  out.value(scale.limit);
  returns.save(out);
}

void Weights::load(ByteReader& in) {
  version = in.value<std::int64_t>();
  policy_version = in.value<std::int64_t>();
  for (const std::span<float> values : {std::span<float>(policy), std::span<float>(critic),
                                        std::span<float>(scale.mean), std::span<float>(scale.inverse_std)}) {
    in.array_into(values);
  }
  scale.limit = in.value<float>();
  returns.load(in);
  if (version < 0 || policy_version < 0 || policy_version > version || !(scale.limit > 0)) {
    throw Error("saved weights: their versions or their limit are damaged");
  }
}

std::vector<TensorSlice> tensors_of(const ModelSpec& spec, Part part) {
  return make_policy<float>(spec, {})->tensors(part);
}

std::size_t parameter_count(const ModelSpec& spec, Part part) { return values_of(tensors_of(spec, part)); }

Weights empty_weights(const ModelSpec& spec) {
  Weights weights;
  weights.policy.resize(parameter_count(spec, Part::kPolicy));
  weights.critic.resize(parameter_count(spec, Part::kCritic));
  weights.scale = ObservationScale::identity(spec.observation_size);
  return weights;
}

Weights initial_weights(const ModelSpec& spec, RandomStream random) {
  Weights weights = empty_weights(spec);
  const auto policy = make_policy<float>(spec, {});
  policy->initialise(Part::kPolicy, weights.policy, random);
  policy->initialise(Part::kCritic, weights.critic, random);
  return weights;
}

}  // namespace gipo
