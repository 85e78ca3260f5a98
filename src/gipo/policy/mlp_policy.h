#pragma once

#include "gipo/policy/mlp.h"
#include "gipo/policy/policy.h"

namespace gipo {

// The networks of a policy of MLPs.
struct MlpShapes {
  MlpShape policy, critic;
  std::size_t shared = 0;  // hidden layers of the policy whose output the critic reads; no gradient of its enters them
};
MlpShapes mlp_shapes(const ModelSpec& spec);

// Two MLPs, apart but for the layers that they share. The policy's outputs are what the distribution is made of; the
// gaussians' log standard deviations are parameters beside the network.
template <class T>
class MlpPolicy final : public Policy<T> {
 public:
  MlpPolicy(const ModelSpec& spec, const PolicyRoom& room);

  std::vector<TensorSlice> tensors(Part part) const override;
  void initialise(Part part, std::span<T> parameters, RandomStream& random) const override;
  void constrain(std::span<T> policy) const override;
  void see(const PolicyParameters<T>& parameters, const PolicyInput& input) override;
  void see_as(const PolicyParameters<T>& parameters, const Policy<T>& other) override;
  void forward(std::size_t rows) override;
  void choose(std::span<const ActionRow> rows) override;
  DistributionView<T> distribution() const override { return view_; }
  void log_prob(const T* actions, T* out) const override { pi_.log_prob(actions, out); }
  void entropy(T* out) const override { pi_.entropy(out); }
  void kl_divergence(const Policy<T>& other, T* out) const override;
  void policy_gradient(const T* actions, const PolicyLoss<T>& loss, std::span<T> gradient) override;
  const T* values() override;
  void value_gradient(const T* d_values, std::size_t rows, std::span<T> gradient) override;
  void add_to(OnnxGraph& graph, std::span<const float> policy, const OnnxObservation& observation,
              const std::string& output) const override;

 private:
  std::span<const T> network() const { return parameters_.policy.first(policy_.parameter_count()); }
  void see_scaled();

  ModelSpec spec_;
  MlpShapes shapes_;
  PolicyRoom room_;
  Mlp<T> policy_, critic_;
  EvaluatedDistribution<T> pi_;
  bool plain_;  // observations are rows of floats already
  std::size_t mask_field_;

  // Of the last calls.
  PolicyParameters<T> parameters_;
  std::int64_t shared_version_ = -1, policy_version_ = -1, critic_version_ = -1;
  std::size_t rows_ = 0, evaluated_ = 0;  // seen; of these, those of forward
  const std::uint8_t* mask_ = nullptr;
  const T* scaled_ = nullptr;        // [rows, observation_size]
  const T* policy_input_ = nullptr;  // [rows, ...] what the first layer sees
  const T* critic_input_ = nullptr;
  const T* features_ = nullptr;  // [rows, ...] what both networks begin with
  DistributionView<T> view_;

  std::vector<float> encoded_;                        // [rows, observation_size] of typed fields
  AlignedVector<T> observation_;                      // [rows, observation_size] scaled
  AlignedVector<T> policy_columns_, critic_columns_;  // what each reads, where some is the critic's
  AlignedVector<T> d_outputs_;                        // [learned, outputs]
};

PolicyMemory mlp_policy_memory(const ModelSpec& spec, const PolicyRoom& room);

extern template class MlpPolicy<float>;
extern template class MlpPolicy<double>;

}  // namespace gipo
