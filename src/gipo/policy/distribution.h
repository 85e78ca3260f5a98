#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gipo/core/aligned_vector.h"
#include "gipo/policy/distribution_terms.h"

namespace gipo {

class RandomStream;

// What all dimensions of an action are.
enum class DistributionKind { kCategorical, kGaussian, kMixed };

// The distribution of an action: one part per dimension, independent of each other. A categorical head serves discrete,
// multi-discrete and binned continuous actions alike.
struct DistributionSpec {
  std::vector<std::int64_t> choices;  // per action dimension: logits of a categorical head; 0: a gaussian
  bool masked = false;                // states say which choices are valid

  std::size_t dims() const { return choices.size(); }
  DistributionKind kind() const;
  // Network outputs per sample, dimension after dimension: the logits of a head, or a gaussian's mean.
  std::size_t outputs() const;
  // Parameters beside the network: the gaussians' log standard deviations.
  std::size_t extra_parameters() const;
  // Values of a mask per sample: one for each choice of each head, in order; not zero where it is valid.
  std::size_t mask_size() const { return outputs() - extra_parameters(); }
};

// The distribution's outputs and extra parameters for a batch of states.
template <class T>
struct DistributionView {
  const T* outputs = nullptr;  // [rows, outputs()]
  std::span<const T> extra;    // [extra_parameters()]
};

// Whether every head has a valid choice; mask_row [mask_size()]. What follows may only be asked where this is so.
bool any_valid(const DistributionSpec& spec, const std::uint8_t* mask_row);

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

  // Before all else; what `pi` and `mask` point to must stay. mask [rows, mask_size()] may be null: all choices are
  // valid. Others have probability zero, also in entropy, divergence and gradient.
  void evaluate(const DistributionView<T>& pi, std::size_t rows, const std::uint8_t* mask = nullptr);

  void log_prob(const T* actions, T* out) const;                         // [rows, dims] of actions [rows, dims]
  void entropy(T* out) const;                                            // [rows] over all dimensions
  void kl_divergence(const EvaluatedDistribution& other, T* out) const;  // [rows] KL(other || pi), over all dimensions
  void gradient(const T* actions, const DistributionLoss<T>& loss, T* d_outputs, std::span<T> d_extra) const;

 private:
  GaussianTerms<T> gaussian(std::size_t row, std::size_t output, std::size_t extra) const {
    return {pi_.outputs[row * outputs_ + output], pi_.extra[extra], inverse_std_[extra]};
  }
  void apply_mask();

  DistributionSpec spec_;
  DistributionKind kind_;
  std::size_t outputs_ = 0, rows_ = 0;
  DistributionView<T> pi_;
  const std::uint8_t* mask_ = nullptr;
  AlignedVector<T> p_, log_p_;   // [rows, outputs] categorical
  std::vector<T> head_entropy_;  // [rows, dims] categorical; zero where a dimension is gaussian
  std::vector<T> inverse_std_;   // [extra_parameters()] gaussian
};

// Standard normal noise of the gaussian dimensions of one environment's actions, [dims], which goes on from step to step.
struct LastingNoise {
  std::span<float> last = {};  // empty: every step has noise of its own
  double correlation = 0;

  // Of the next step in dimension d, from a number that is independent of all before.
  double next(std::size_t d, double fresh) const;
};

// One action and its log-prob per dimension, for one row of outputs; mask [rows, mask_size()] may be null.
template <class T>
void sample_action(const DistributionSpec& spec, const DistributionView<T>& pi, std::size_t row, RandomStream& random,
                   std::span<float> action, std::span<float> log_prob, const std::uint8_t* mask = nullptr,
                   const LastingNoise& noise = {});
// The most likely action.
template <class T>
void mode_action(const DistributionSpec& spec, const DistributionView<T>& pi, std::size_t row, std::span<float> action,
                 const std::uint8_t* mask = nullptr);

}  // namespace gipo
