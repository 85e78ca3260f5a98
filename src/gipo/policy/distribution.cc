#include "gipo/policy/distribution.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/data/transition.h"
#include "gipo/kernels/dense.h"

namespace gipo {
namespace {

// log(sum(exp(logits))), without overflow.
template <class T>
T log_sum_exp(const T* logits, std::size_t n) {
  const T top = *std::max_element(logits, logits + n);
  T sum = 0;
  for (std::size_t k = 0; k < n; ++k) sum += std::exp(logits[k] - top);
  return top + std::log(sum);
}

template <class T>
const T kHalfLog2Pi = T(0.5 * std::log(2.0 * std::numbers::pi));

// Calls f(dimension, offset of its logits, number of choices) for every head of one row.
template <class F>
void for_each_head(const DistributionSpec& spec, F&& f) {
  std::size_t offset = 0;
  for (std::size_t d = 0; d < spec.dims; ++d) {
    const auto n = static_cast<std::size_t>(spec.choices[d]);
    f(d, offset, n);
    offset += n;
  }
}

}  // namespace

std::size_t DistributionSpec::outputs() const {
  if (kind == DistributionKind::kGaussian) return dims;
  return static_cast<std::size_t>(std::accumulate(choices.begin(), choices.end(), std::int64_t{0}));
}

bool possible_actions(std::span<const std::int64_t> choices, std::span<const float> actions) {
  return possible_choices(choices, actions);
}

template <class T>
EvaluatedDistribution<T>::EvaluatedDistribution(const DistributionSpec& spec, std::size_t max_rows)
    : spec_(spec), outputs_(spec.outputs()) {
  inverse_std_.resize(spec.dims);
  if (!categorical()) return;
  p_.resize(max_rows * outputs_);
  log_p_.resize(max_rows * outputs_);
  head_entropy_.resize(max_rows * spec.dims);
}

template <class T>
void EvaluatedDistribution<T>::evaluate(const DistributionView<T>& pi, std::size_t rows) {
  pi_ = pi;
  rows_ = rows;
  if (!categorical()) {
    for (std::size_t d = 0; d < spec_.dims; ++d) inverse_std_[d] = std::exp(-pi.extra[d]);
    return;
  }
  const DenseKernels<T>& kernels = dense_kernels<T>();
  for_each_head(spec_, [&](std::size_t d, std::size_t offset, std::size_t n) {
    kernels.softmax(pi.outputs + offset, rows, n, outputs_, p_.data() + offset, log_p_.data() + offset,
                    head_entropy_.data() + d, spec_.dims);
  });
}

template <class T>
void EvaluatedDistribution<T>::log_prob(const T* actions, T* out) const {
  for (std::size_t r = 0; r < rows_; ++r, actions += spec_.dims, out += spec_.dims) {
    if (categorical()) {
      for_each_head(spec_, [&](std::size_t d, std::size_t offset, std::size_t) {
        out[d] = log_p_[r * outputs_ + offset + static_cast<std::size_t>(actions[d])];
      });
      continue;
    }
    for (std::size_t d = 0; d < spec_.dims; ++d) {
      const T z = (actions[d] - pi_.outputs[r * outputs_ + d]) * inverse_std_[d];
      out[d] = T(-0.5) * z * z - pi_.extra[d] - kHalfLog2Pi<T>;
    }
  }
}

template <class T>
void EvaluatedDistribution<T>::entropy(T* out) const {
  T same = 0;
  if (!categorical()) {
    for (std::size_t d = 0; d < spec_.dims; ++d) same += pi_.extra[d] + kHalfLog2Pi<T> + T(0.5);
  }
  for (std::size_t r = 0; r < rows_; ++r) {
    out[r] = same;
    for (std::size_t d = 0; categorical() && d < spec_.dims; ++d) out[r] += head_entropy_[r * spec_.dims + d];
  }
}

template <class T>
void EvaluatedDistribution<T>::kl_divergence(const EvaluatedDistribution& other, T* out) const {
  for (std::size_t r = 0; r < rows_; ++r) {
    const std::size_t at = r * outputs_;
    out[r] = 0;
    if (categorical()) {
      for (std::size_t k = at; k < at + outputs_; ++k) out[r] += other.p_[k] * (other.log_p_[k] - log_p_[k]);
      continue;
    }
    for (std::size_t d = 0; d < spec_.dims; ++d) {
      const T ratio = inverse_std_[d] / other.inverse_std_[d];
      const T shift = (other.pi_.outputs[at + d] - pi_.outputs[at + d]) * inverse_std_[d];
      out[r] += pi_.extra[d] - other.pi_.extra[d] + T(0.5) * (ratio * ratio + shift * shift - T(1));
    }
  }
}

template <class T>
void EvaluatedDistribution<T>::gradient(const T* actions, const DistributionLoss<T>& loss, T* d_outputs,
                                        std::span<T> d_extra) const {
  if (!categorical()) return gaussian_gradient(actions, loss, d_outputs, d_extra);
  const DenseKernels<T>& kernels = dense_kernels<T>();
  for (std::size_t r = 0; r < rows_; ++r) {
    for_each_head(spec_, [&](std::size_t d, std::size_t offset, std::size_t n) {
      const std::size_t at = r * outputs_ + offset, head = r * spec_.dims + d;
      const T d_log_prob = loss.d_log_prob[head];
      kernels.softmax_gradient(p_.data() + at, log_p_.data() + at, loss.other ? loss.other->p_.data() + at : nullptr, n,
                               {d_log_prob, loss.entropy_coef, head_entropy_[head], loss.kl_coef}, d_outputs + at);
      d_outputs[at + static_cast<std::size_t>(actions[head])] += d_log_prob;
    });
  }
}

template <class T>
void EvaluatedDistribution<T>::gaussian_gradient(const T* actions, const DistributionLoss<T>& loss, T* d_outputs,
                                                 std::span<T> d_extra) const {
  std::fill(d_extra.begin(), d_extra.end(), T(0));
  for (std::size_t r = 0; r < rows_; ++r) {
    for (std::size_t d = 0; d < spec_.dims; ++d) {
      const std::size_t i = r * spec_.dims + d;
      const T z = (actions[i] - pi_.outputs[i]) * inverse_std_[d], g = loss.d_log_prob[i];
      T d_mean = g * z * inverse_std_[d], d_log_std = g * (z * z - T(1)) - loss.entropy_coef;
      if (loss.other) {
        const T ratio = inverse_std_[d] / loss.other->inverse_std_[d];
        const T shift = (loss.other->pi_.outputs[i] - pi_.outputs[i]) * inverse_std_[d];
        d_mean -= loss.kl_coef * shift * inverse_std_[d];
        d_log_std += loss.kl_coef * (T(1) - ratio * ratio - shift * shift);
      }
      d_outputs[i] = d_mean;
      d_extra[d] += d_log_std;
    }
  }
}

void sample_action(const DistributionSpec& spec, const DistributionView<float>& pi, std::size_t row,
                   RandomStream& random, std::span<float> action, std::span<float> log_prob) {
  const float* out = pi.outputs + row * spec.outputs();
  if (spec.kind == DistributionKind::kGaussian) {
    for (std::size_t d = 0; d < spec.dims; ++d) {
      const float z = static_cast<float>(random.normal());
      action[d] = out[d] + z * std::exp(pi.extra[d]);
      log_prob[d] = -0.5f * z * z - pi.extra[d] - kHalfLog2Pi<float>;
    }
    return;
  }
  for_each_head(spec, [&](std::size_t d, std::size_t offset, std::size_t n) {
    const float* head = out + offset;
    const float norm = log_sum_exp(head, n);
    double left = random.uniform();
    std::size_t k = 0;
    for (; k + 1 < n; ++k) {
      left -= std::exp(static_cast<double>(head[k] - norm));
      if (left < 0) break;
    }
    action[d] = static_cast<float>(k);
    log_prob[d] = head[k] - norm;
  });
}

void mode_action(const DistributionSpec& spec, const DistributionView<float>& pi, std::size_t row,
                 std::span<float> action) {
  const float* out = pi.outputs + row * spec.outputs();
  if (spec.kind == DistributionKind::kGaussian) {
    std::copy_n(out, spec.dims, action.begin());
    return;
  }
  for_each_head(spec, [&](std::size_t d, std::size_t offset, std::size_t n) {
    action[d] = static_cast<float>(std::max_element(out + offset, out + offset + n) - (out + offset));
  });
}

template class EvaluatedDistribution<float>;
template class EvaluatedDistribution<double>;

}  // namespace gipo
