#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gipo/core/aligned_vector.h"

namespace gipo {

class RandomStream;

// The kinds of action distribution. Categorical has one head per action dimension, so that it serves discrete,
// multi-discrete and binned continuous actions alike.
enum class DistributionKind { kCategorical, kGaussian };

struct DistributionSpec {
  DistributionKind kind = DistributionKind::kCategorical;
  std::vector<std::int64_t> choices;  // categorical: choices per dimension
  std::size_t dims = 0;               // action dimensions

  // Network outputs per sample: all heads' logits, or the means.
  std::size_t outputs() const;
  // Parameters beside the network: the gaussian's log standard deviations.
  std::size_t extra_parameters() const { return kind == DistributionKind::kGaussian ? dims : 0; }
};

inline constexpr double kMinLogStd = -5.0, kMaxLogStd = 2.0;

// The distribution's outputs and extra parameters for a batch of states.
template <class T>
struct DistributionView {
  const T* outputs = nullptr;  // [rows, outputs()]
  std::span<const T> extra;    // [extra_parameters()]
};

// Whether every action [rows, dims] is one that can be taken: a finite number, and one of the choices where there are
// any. For data that was read: log_prob_and_entropy takes a choice as an index.
bool possible_actions(std::span<const std::int64_t> choices, std::span<const float> actions);

// What the loss says of each sample; the distribution turns it into gradients by its outputs and extra parameters.
template <class T>
class EvaluatedDistribution;
template <class T>
struct DistributionLoss {
  const T* d_log_prob = nullptr;                    // [rows, dims]
  T entropy_coef = 0;                               // weight of -entropy, per sample
  T kl_coef = 0;                                    // weight of KL(other || pi), per sample
  const EvaluatedDistribution<T>* other = nullptr;  // where kl_coef is not zero
};

// The distribution pi over a batch of states, what log-probs, entropies and gradients share being computed once. An
// action is `dims` numbers, categorical choices as whole ones.
template <class T>
class EvaluatedDistribution {
 public:
  EvaluatedDistribution(const DistributionSpec& spec, std::size_t max_rows);

  // Before all else; what `pi` points to must stay.
  void evaluate(const DistributionView<T>& pi, std::size_t rows);

  void log_prob(const T* actions, T* out) const;                         // [rows, dims] of actions [rows, dims]
  void entropy(T* out) const;                                            // [rows] over all dimensions
  void kl_divergence(const EvaluatedDistribution& other, T* out) const;  // [rows] KL(other || pi), over all dimensions
  void gradient(const T* actions, const DistributionLoss<T>& loss, T* d_outputs, std::span<T> d_extra) const;

 private:
  bool categorical() const { return spec_.kind == DistributionKind::kCategorical; }
  void gaussian_gradient(const T* actions, const DistributionLoss<T>& loss, T* d_outputs, std::span<T> d_extra) const;

  DistributionSpec spec_;
  std::size_t outputs_ = 0, rows_ = 0;
  DistributionView<T> pi_;
  AlignedVector<T> p_, log_p_;   // [rows, outputs] categorical
  std::vector<T> head_entropy_;  // [rows, dims] categorical
  std::vector<T> inverse_std_;   // [dims] gaussian
};

// One action and its log-prob per dimension, for one row of outputs.
void sample_action(const DistributionSpec& spec, const DistributionView<float>& pi, std::size_t row,
                   RandomStream& random, std::span<float> action, std::span<float> log_prob);
// The most likely action.
void mode_action(const DistributionSpec& spec, const DistributionView<float>& pi, std::size_t row,
                 std::span<float> action);

}  // namespace gipo
