#include "gipo/policy/distribution.h"

#include <algorithm>
#include <cmath>

#include "gipo/core/random.h"
#include "gipo/kernels/dense.h"

namespace gipo {
namespace {

// Calls, for every dimension d of a row, categorical(d, place of its logits, choices, place in the mask) or gaussian(d,
// place of its mean, place of its log std). These are called from two loops and in the innermost one: inlined in both.
template <class Categorical, class Gaussian>
inline void for_each_dim(const DistributionSpec& spec, DistributionKind kind, Categorical&& categorical,
                         Gaussian&& gaussian) {
  const std::size_t dims = spec.dims();
  if (kind == DistributionKind::kGaussian) {
    for (std::size_t d = 0; d < dims; ++d) gaussian(d, d, d);
    return;
  }
  std::size_t offset = 0, extra = 0;
  for (std::size_t d = 0; d < dims; ++d) {
    if (const auto n = static_cast<std::size_t>(spec.choices[d]); n > 0) {
      categorical(d, offset, n, offset - extra);
      offset += n;
    } else {
      gaussian(d, offset++, extra++);
    }
  }
}

constexpr auto kNothing = [](auto...) {};

}  // namespace

DistributionKind DistributionSpec::kind() const {
  const std::size_t gaussians = extra_parameters();
  if (gaussians == 0) return DistributionKind::kCategorical;
  return gaussians == dims() ? DistributionKind::kGaussian : DistributionKind::kMixed;
}

std::size_t DistributionSpec::outputs() const {
  std::int64_t sum = 0;
  for (const std::int64_t n : choices) sum += n > 0 ? n : 1;
  return static_cast<std::size_t>(sum);
}

std::size_t DistributionSpec::extra_parameters() const {
  return static_cast<std::size_t>(std::count(choices.begin(), choices.end(), 0));
}

bool any_valid(const DistributionSpec& spec, const std::uint8_t* mask_row) {
  for (const std::int64_t n : spec.choices) {
    if (n > 0 && std::all_of(mask_row, mask_row + n, [](std::uint8_t v) { return v == 0; })) return false;
    mask_row += n;
  }
  return true;
}

template <class T>
EvaluatedDistribution<T>::EvaluatedDistribution(const DistributionSpec& spec, std::size_t max_rows)
    : spec_(spec), kind_(spec.kind()), outputs_(spec.outputs()), inverse_std_(spec.extra_parameters()) {
  if (kind_ == DistributionKind::kGaussian) return;
  p_.resize(max_rows * outputs_);
  log_p_.resize(max_rows * outputs_);
  head_entropy_.resize(max_rows * spec.dims());
}

template <class T>
void EvaluatedDistribution<T>::evaluate(const DistributionView<T>& pi, std::size_t rows, const std::uint8_t* mask) {
  pi_ = pi;
  rows_ = rows;
  mask_ = kind_ == DistributionKind::kGaussian ? nullptr : mask;
  const DenseKernels<T>& kernels = dense_kernels<T>();
  if (mask_) {
    for (std::size_t r = 0; r < rows; ++r, mask += spec_.mask_size()) {
      const auto copy = [&](std::size_t, std::size_t offset, std::size_t n, std::size_t choice)
          __attribute__((always_inline)) {
        const std::size_t at = r * outputs_ + offset;
        for (std::size_t k = 0; k < n; ++k) log_p_[at + k] = mask[choice + k] ? pi.outputs[at + k] : kMaskedLogit<T>;
      };
      for_each_dim(spec_, kind_, copy, kNothing);
    }
  }
  const T* logits = mask_ ? log_p_.data() : pi.outputs;
  for_each_dim(
      spec_, kind_,
      [&](std::size_t d, std::size_t offset, std::size_t n, std::size_t) __attribute__((always_inline)) {
        kernels.softmax(logits + offset, rows, n, outputs_, p_.data() + offset, log_p_.data() + offset,
                        head_entropy_.data() + d, spec_.dims());
      },
      [&](std::size_t, std::size_t, std::size_t extra)
          __attribute__((always_inline)) { inverse_std_[extra] = std::exp(-pi.extra[extra]); });
  if (mask_) apply_mask();
}

// The kernel's exponential ends at a smallest number: what is not valid gets its zeros here, and the entropy without it.
template <class T>
void EvaluatedDistribution<T>::apply_mask() {
  const std::uint8_t* mask = mask_;
  for (std::size_t r = 0; r < rows_; ++r, mask += spec_.mask_size()) {
    const auto apply = [&](std::size_t d, std::size_t offset, std::size_t n, std::size_t choice)
        __attribute__((always_inline)) {
      T *p = p_.data() + r * outputs_ + offset, *log_p = log_p_.data() + r * outputs_ + offset, sum = 0;
      bool all = true;
      for (std::size_t k = 0; k < n; ++k) {
        if (mask[choice + k]) {
          sum -= p[k] * log_p[k];
          continue;
        }
        p[k] = 0;
        log_p[k] = kMaskedLogit<T>;
        all = false;
      }
      if (!all) head_entropy_[r * spec_.dims() + d] = sum;
    };
    for_each_dim(spec_, kind_, apply, kNothing);
  }
}

template <class T>
void EvaluatedDistribution<T>::log_prob(const T* actions, T* out) const {
  const std::size_t dims = spec_.dims();
  for (std::size_t r = 0; r < rows_; ++r, actions += dims, out += dims) {
    for_each_dim(
        spec_, kind_,
        [&](std::size_t d, std::size_t offset, std::size_t, std::size_t) __attribute__((always_inline)) {
          out[d] = log_p_[r * outputs_ + offset + static_cast<std::size_t>(actions[d])];
        },
        [&](std::size_t d, std::size_t offset, std::size_t extra)
            __attribute__((always_inline)) { out[d] = gaussian_log_prob(gaussian(r, offset, extra), actions[d]); });
  }
}

template <class T>
void EvaluatedDistribution<T>::entropy(T* out) const {
  T same = 0;
  for (std::size_t e = 0; e < inverse_std_.size(); ++e) same += gaussian_entropy(pi_.extra[e]);
  const std::size_t dims = kind_ == DistributionKind::kGaussian ? 0 : spec_.dims();
  for (std::size_t r = 0; r < rows_; ++r) {
    out[r] = same;
    for (std::size_t d = 0; d < dims; ++d) out[r] += head_entropy_[r * dims + d];
  }
}

template <class T>
void EvaluatedDistribution<T>::kl_divergence(const EvaluatedDistribution& other, T* out) const {
  for (std::size_t r = 0; r < rows_; ++r) {
    T sum = 0;
    for_each_dim(
        spec_, kind_,
        [&](std::size_t, std::size_t offset, std::size_t n, std::size_t) __attribute__((always_inline)) {
          const std::size_t at = r * outputs_ + offset;
          sum = add_categorical_kl(sum, other.p_.data() + at, other.log_p_.data() + at, log_p_.data() + at, n);
        },
        [&](std::size_t, std::size_t offset, std::size_t extra) __attribute__((always_inline)) {
          sum += gaussian_kl(other.gaussian(r, offset, extra), gaussian(r, offset, extra));
        });
    out[r] = sum;
  }
}

template <class T>
void EvaluatedDistribution<T>::gradient(const T* actions, const DistributionLoss<T>& loss, T* d_outputs,
                                        std::span<T> d_extra) const {
  const DenseKernels<T>& kernels = dense_kernels<T>();
  const std::size_t dims = spec_.dims(), mask_size = spec_.mask_size();
  std::fill(d_extra.begin(), d_extra.end(), T(0));
  for (std::size_t r = 0; r < rows_; ++r) {
    for_each_dim(
        spec_, kind_,
        [&](std::size_t d, std::size_t offset, std::size_t n, std::size_t choice) __attribute__((always_inline)) {
          const std::size_t at = r * outputs_ + offset, head = r * dims + d;
          const T d_log_prob = loss.d_log_prob[head];
          kernels.softmax_gradient(p_.data() + at, log_p_.data() + at,
                                   loss.other ? loss.other->p_.data() + at : nullptr, n,
                                   {d_log_prob, loss.entropy_coef, head_entropy_[head], loss.kl_coef}, d_outputs + at);
          d_outputs[at + static_cast<std::size_t>(actions[head])] += d_log_prob;
          if (!mask_) return;
          const std::uint8_t* mask = mask_ + r * mask_size + choice;
          for (std::size_t k = 0; k < n; ++k) d_outputs[at + k] = mask[k] ? d_outputs[at + k] : T(0);
        },
        [&](std::size_t d, std::size_t offset, std::size_t extra) __attribute__((always_inline)) {
          const GaussianTerms<T> pi = gaussian(r, offset, extra);
          const std::size_t i = r * dims + d;
          GaussianGradient<T> g = gaussian_gradient(pi, actions[i], loss.d_log_prob[i], loss.entropy_coef);
          if (loss.other) add_gaussian_kl(loss.other->gaussian(r, offset, extra), pi, loss.kl_coef, g);
          d_outputs[r * outputs_ + offset] = g.mean;
          d_extra[extra] += g.log_std;
        });
  }
}

double LastingNoise::next(std::size_t d, double fresh) const {
  if (last.empty()) return fresh;
  last[d] = static_cast<float>(lasting_noise(correlation, static_cast<double>(last[d]), fresh));
  return static_cast<double>(last[d]);
}

template <class T>
void sample_action(const DistributionSpec& spec, const DistributionView<T>& pi, std::size_t row, RandomStream& random,
                   std::span<float> action, std::span<float> log_prob, const std::uint8_t* mask,
                   const LastingNoise& noise) {
  const T* out = pi.outputs + row * spec.outputs();
  if (mask) mask += row * spec.mask_size();
  for_each_dim(
      spec, spec.kind(),
      [&](std::size_t d, std::size_t offset, std::size_t n, std::size_t choice) __attribute__((always_inline)) {
        const T* head = out + offset;
        const std::uint8_t* valid = mask ? mask + choice : nullptr;
        const T norm = log_sum_exp(head, valid, n);
        double left = random.uniform();
        // Where rounding leaves a rest, it goes to the last that is valid.
        std::size_t chosen = 0;
        for (std::size_t k = 0; k < n; ++k) {
          if (!valid_choice(valid, k)) continue;
          chosen = k;
          if (k + 1 == n) break;
          left -= std::exp(static_cast<double>(head[k] - norm));
          if (left < 0) break;
        }
        action[d] = static_cast<float>(chosen);
        log_prob[d] = static_cast<float>(head[chosen] - norm);
      },
      [&](std::size_t d, std::size_t offset, std::size_t extra) __attribute__((always_inline)) {
        const T z = static_cast<T>(noise.next(d, random.normal()));
        action[d] = static_cast<float>(out[offset] + z * std::exp(pi.extra[extra]));
        log_prob[d] = static_cast<float>(T(-0.5) * z * z - pi.extra[extra] - kHalfLog2Pi<T>);
      });
}

template <class T>
void mode_action(const DistributionSpec& spec, const DistributionView<T>& pi, std::size_t row, std::span<float> action,
                 const std::uint8_t* mask) {
  const T* out = pi.outputs + row * spec.outputs();
  if (mask) mask += row * spec.mask_size();
  for_each_dim(
      spec, spec.kind(),
      [&](std::size_t d, std::size_t offset, std::size_t n, std::size_t choice) __attribute__((always_inline)) {
        const T* head = out + offset;
        const std::uint8_t* valid = mask ? mask + choice : nullptr;
        std::size_t best = 0;
        while (best + 1 < n && !valid_choice(valid, best)) ++best;
        for (std::size_t k = best + 1; k < n; ++k) {
          if (valid_choice(valid, k) && head[best] < head[k]) best = k;
        }
        action[d] = static_cast<float>(best);
      },
      [&](std::size_t d, std::size_t offset, std::size_t)
          __attribute__((always_inline)) { action[d] = static_cast<float>(out[offset]); });
}

template class EvaluatedDistribution<float>;
template class EvaluatedDistribution<double>;

#define GIPO_INSTANTIATE(T)                                                                                     \
  template void sample_action(const DistributionSpec&, const DistributionView<T>&, std::size_t, RandomStream&,  \
                              std::span<float>, std::span<float>, const std::uint8_t*, const LastingNoise&);    \
  template void mode_action(const DistributionSpec&, const DistributionView<T>&, std::size_t, std::span<float>, \
                            const std::uint8_t*);
GIPO_INSTANTIATE(float)
GIPO_INSTANTIATE(double)
#undef GIPO_INSTANTIATE

}  // namespace gipo
