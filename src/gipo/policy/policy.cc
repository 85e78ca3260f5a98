#include "gipo/policy/policy.h"

#include "gipo/policy/mlp_policy.h"

namespace gipo {

PolicyParameters<float> parameters_of(const Weights& weights) {
  return {weights.policy, weights.critic, &weights.scale, weights.policy_version, weights.version};
}

template <class T>
std::unique_ptr<Policy<T>> make_policy(const ModelSpec& spec, const PolicyRoom& room) {
  return std::make_unique<MlpPolicy<T>>(spec, room);
}
template std::unique_ptr<Policy<float>> make_policy(const ModelSpec&, const PolicyRoom&);
template std::unique_ptr<Policy<double>> make_policy(const ModelSpec&, const PolicyRoom&);

PolicyMemory policy_memory(const ModelSpec& spec, const PolicyRoom& room) { return mlp_policy_memory(spec, room); }

}  // namespace gipo
