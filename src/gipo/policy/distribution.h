#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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

// Pure functions over a batch; an action is `dims` numbers, categorical choices as whole ones.

// log_prob [rows, dims] of actions [rows, dims]; entropy [rows], over all dimensions.
template <class T>
void log_prob_and_entropy(const DistributionSpec& spec, const DistributionView<T>& pi, std::size_t rows,
                          const T* actions, T* log_prob, T* entropy);

// KL(other || pi) [rows], over all dimensions.
template <class T>
void kl_divergence(const DistributionSpec& spec, const DistributionView<T>& other, const DistributionView<T>& pi,
                   std::size_t rows, T* kl);

// What the loss says of each sample; the distribution turns it into gradients by its outputs and extra parameters.
template <class T>
struct DistributionLoss {
  const T* d_log_prob = nullptr;  // [rows, dims]
  T entropy_coef = 0;             // weight of -entropy, per sample
  T kl_coef = 0;                  // weight of KL(other || pi), per sample; 0: `other` is not read
  DistributionView<T> other;
};
template <class T>
void loss_gradient(const DistributionSpec& spec, const DistributionView<T>& pi, std::size_t rows, const T* actions,
                   const DistributionLoss<T>& loss, T* d_outputs, std::span<T> d_extra);

// One action and its log-prob per dimension, for one row of outputs.
void sample_action(const DistributionSpec& spec, const DistributionView<float>& pi, std::size_t row,
                   RandomStream& random, std::span<float> action, std::span<float> log_prob);
// The most likely action.
void mode_action(const DistributionSpec& spec, const DistributionView<float>& pi, std::size_t row,
                 std::span<float> action);

}  // namespace gipo
