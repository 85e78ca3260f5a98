#include "gipo/policy/distribution.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "gipo/core/error.h"
#include "gipo/core/random.h"

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

template <class T>
void categorical_log_prob(const DistributionSpec& spec, const T* logits, const T* action, T* log_prob, T* entropy) {
  *entropy = 0;
  for_each_head(spec, [&](std::size_t d, std::size_t offset, std::size_t n) {
    const T* head = logits + offset;
    const T norm = log_sum_exp(head, n);
    log_prob[d] = head[static_cast<std::size_t>(action[d])] - norm;
    for (std::size_t k = 0; k < n; ++k) *entropy -= std::exp(head[k] - norm) * (head[k] - norm);
  });
}

template <class T>
void categorical_gradient(const DistributionSpec& spec, const T* logits, const T* action, const T* d_log_prob,
                          T entropy_coef, T kl_coef, const T* other, T* d) {
  for_each_head(spec, [&](std::size_t dim, std::size_t offset, std::size_t n) {
    const T* head = logits + offset;
    const T norm = log_sum_exp(head, n);
    const T other_norm = kl_coef == 0 ? T(0) : log_sum_exp(other + offset, n);
    T entropy = 0;
    for (std::size_t k = 0; k < n; ++k) entropy -= std::exp(head[k] - norm) * (head[k] - norm);
    for (std::size_t k = 0; k < n; ++k) {
      const T log_p = head[k] - norm, p = std::exp(log_p);
      T g = -d_log_prob[dim] * p + entropy_coef * p * (log_p + entropy);
      if (kl_coef != 0) g += kl_coef * (p - std::exp(other[offset + k] - other_norm));
      d[offset + k] = g;
    }
    d[offset + static_cast<std::size_t>(action[dim])] += d_log_prob[dim];
  });
}

}  // namespace

std::size_t DistributionSpec::outputs() const {
  if (kind == DistributionKind::kGaussian) return dims;
  return static_cast<std::size_t>(std::accumulate(choices.begin(), choices.end(), std::int64_t{0}));
}

bool possible_actions(std::span<const std::int64_t> choices, std::span<const float> actions) {
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const float a = actions[i];
    if (!std::isfinite(a)) return false;
    if (choices.empty()) continue;
    if (a != std::floor(a) || a < 0 || a >= static_cast<float>(choices[i % choices.size()])) return false;
  }
  return true;
}

template <class T>
void log_prob_and_entropy(const DistributionSpec& spec, const DistributionView<T>& pi, std::size_t rows,
                          const T* actions, T* log_prob, T* entropy) {
  const std::size_t width = spec.outputs();
  for (std::size_t r = 0; r < rows; ++r) {
    const T* out = pi.outputs + r * width;
    if (spec.kind == DistributionKind::kCategorical) {
      categorical_log_prob(spec, out, actions + r * spec.dims, log_prob + r * spec.dims, entropy + r);
      continue;
    }
    entropy[r] = 0;
    for (std::size_t d = 0; d < spec.dims; ++d) {
      const T z = (actions[r * spec.dims + d] - out[d]) * std::exp(-pi.extra[d]);
      log_prob[r * spec.dims + d] = T(-0.5) * z * z - pi.extra[d] - kHalfLog2Pi<T>;
      entropy[r] += pi.extra[d] + kHalfLog2Pi<T> + T(0.5);
    }
  }
}

template <class T>
void kl_divergence(const DistributionSpec& spec, const DistributionView<T>& other, const DistributionView<T>& pi,
                   std::size_t rows, T* kl) {
  const std::size_t width = spec.outputs();
  for (std::size_t r = 0; r < rows; ++r) {
    const T* p = pi.outputs + r * width;
    const T* q = other.outputs + r * width;
    kl[r] = 0;
    if (spec.kind == DistributionKind::kCategorical) {
      for_each_head(spec, [&](std::size_t, std::size_t offset, std::size_t n) {
        const T norm_p = log_sum_exp(p + offset, n), norm_q = log_sum_exp(q + offset, n);
        for (std::size_t k = offset; k < offset + n; ++k) {
          const T log_q = q[k] - norm_q;
          kl[r] += std::exp(log_q) * (log_q - (p[k] - norm_p));
        }
      });
      continue;
    }
    for (std::size_t d = 0; d < spec.dims; ++d) {
      const T ratio = std::exp(other.extra[d] - pi.extra[d]);
      const T shift = (q[d] - p[d]) * std::exp(-pi.extra[d]);
      kl[r] += pi.extra[d] - other.extra[d] + T(0.5) * (ratio * ratio + shift * shift - T(1));
    }
  }
}

template <class T>
void loss_gradient(const DistributionSpec& spec, const DistributionView<T>& pi, std::size_t rows, const T* actions,
                   const DistributionLoss<T>& loss, T* d_outputs, std::span<T> d_extra) {
  const std::size_t width = spec.outputs();
  std::fill(d_extra.begin(), d_extra.end(), T(0));
  for (std::size_t r = 0; r < rows; ++r) {
    const T* out = pi.outputs + r * width;
    const T* other = loss.kl_coef == 0 ? nullptr : loss.other.outputs + r * width;
    const T* g = loss.d_log_prob + r * spec.dims;
    if (spec.kind == DistributionKind::kCategorical) {
      categorical_gradient(spec, out, actions + r * spec.dims, g, loss.entropy_coef, loss.kl_coef, other,
                           d_outputs + r * width);
      continue;
    }
    for (std::size_t d = 0; d < spec.dims; ++d) {
      const T inverse_std = std::exp(-pi.extra[d]);
      const T z = (actions[r * spec.dims + d] - out[d]) * inverse_std;
      T d_mean = g[d] * z * inverse_std, d_log_std = g[d] * (z * z - T(1)) - loss.entropy_coef;
      if (other) {
        const T ratio = std::exp(loss.other.extra[d] - pi.extra[d]);
        const T shift = (other[d] - out[d]) * inverse_std;
        d_mean -= loss.kl_coef * shift * inverse_std;
        d_log_std += loss.kl_coef * (T(1) - ratio * ratio - shift * shift);
      }
      d_outputs[r * width + d] = d_mean;
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

#define GIPO_INSTANTIATE(T)                                                                                         \
  template void log_prob_and_entropy<T>(const DistributionSpec&, const DistributionView<T>&, std::size_t, const T*, \
                                        T*, T*);                                                                    \
  template void kl_divergence<T>(const DistributionSpec&, const DistributionView<T>&, const DistributionView<T>&,   \
                                 std::size_t, T*);                                                                  \
  template void loss_gradient<T>(const DistributionSpec&, const DistributionView<T>&, std::size_t, const T*,        \
                                 const DistributionLoss<T>&, T*, std::span<T>);
GIPO_INSTANTIATE(float)
GIPO_INSTANTIATE(double)
#undef GIPO_INSTANTIATE

}  // namespace gipo
