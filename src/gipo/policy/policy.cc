#include "gipo/policy/policy.h"

#include <type_traits>

#include "gipo/core/error.h"
#include "gipo/policy/mlp_policy.h"
#include "gipo/policy/torch_policy.h"

namespace gipo {

PolicyParameters<float> parameters_of(const Weights& weights) {
  return {weights.policy, weights.critic, &weights.scale, weights.policy_version, weights.version, weights.model.get()};
}

template <class T>
void choose_actions(const DistributionSpec& spec, const DistributionView<T>& pi, std::span<const ActionRow> rows,
                    const std::uint8_t* mask) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].random) {
      sample_action<T>(spec, pi, r, *rows[r].random, rows[r].action, rows[r].log_prob, mask, rows[r].noise);
    } else {
      mode_action<T>(spec, pi, r, rows[r].action, mask);
    }
  }
}
template void choose_actions(const DistributionSpec&, const DistributionView<float>&, std::span<const ActionRow>,
                             const std::uint8_t*);
template void choose_actions(const DistributionSpec&, const DistributionView<double>&, std::span<const ActionRow>,
                             const std::uint8_t*);

template <class T>
std::unique_ptr<Policy<T>> make_policy(const ModelSpec& spec, const PolicyRoom& room) {
  if constexpr (std::is_same_v<T, float>) {
    if (spec.needs_torch()) return make_torch_policy(spec, room);
  }
  GIPO_CHECK(!spec.needs_torch());
  return std::make_unique<MlpPolicy<T>>(spec, room);
}
template std::unique_ptr<Policy<float>> make_policy(const ModelSpec&, const PolicyRoom&);
template std::unique_ptr<Policy<double>> make_policy(const ModelSpec&, const PolicyRoom&);

PolicyMemory policy_memory(const ModelSpec& spec, const PolicyRoom& room) {
  return spec.needs_torch() ? torch_policy_memory(spec, room) : mlp_policy_memory(spec, room);
}

}  // namespace gipo
