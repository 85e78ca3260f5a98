// The terms of action distributions for one dimension of one action: log-prob, entropy, KL divergence and derivatives.
// Compiles for host and device.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "gipo/core/device.h"

namespace gipo {

template <class T>
inline constexpr T kHalfLog2Pi = T(0.9189385332046727);

// The logit of a choice that is not valid: finite, so that zero times its log-prob is zero, and so low that the
// exponential of that log-prob is exactly zero.
template <class T>
inline constexpr T kMaskedLogit = T(-1e30);

GIPO_HD inline bool valid_choice(const std::uint8_t* mask, std::size_t k) { return !mask || mask[k] != 0; }

// Updates keep log standard deviations within these.
inline constexpr double kMinLogStd = -5.0, kMaxLogStd = 2.0;

template <class T>
struct GaussianTerms {
  T mean, log_std, inverse_std;  // the last is exp(-log_std)
};

template <class T>
GIPO_HD inline T gaussian_log_prob(const GaussianTerms<T>& pi, T action) {
  const T z = (action - pi.mean) * pi.inverse_std;
  return T(-0.5) * z * z - pi.log_std - kHalfLog2Pi<T>;
}

template <class T>
GIPO_HD inline T gaussian_entropy(T log_std) {
  return log_std + kHalfLog2Pi<T> + T(0.5);
}

// KL(other || pi)
template <class T>
GIPO_HD inline T gaussian_kl(const GaussianTerms<T>& other, const GaussianTerms<T>& pi) {
  const T ratio = pi.inverse_std / other.inverse_std;
  const T shift = (other.mean - pi.mean) * pi.inverse_std;
  return pi.log_std - other.log_std + T(0.5) * (ratio * ratio + shift * shift - T(1));
}

// Noise with a correlation to the step before, from a number that is independent of all before: standard normal as both are.
GIPO_HD inline double lasting_noise(double correlation, double last, double fresh) {
  return correlation * last + std::sqrt(1 - correlation * correlation) * fresh;
}

template <class T>
struct GaussianGradient {
  T mean, log_std;  // derivatives by these
};

// Of d_log_prob * log_prob(action) - entropy_coef * entropy.
template <class T>
GIPO_HD inline GaussianGradient<T> gaussian_gradient(const GaussianTerms<T>& pi, T action, T d_log_prob,
                                                     T entropy_coef) {
  const T z = (action - pi.mean) * pi.inverse_std;
  return {d_log_prob * z * pi.inverse_std, d_log_prob * (z * z - T(1)) - entropy_coef};
}

// Adds that of kl_coef * KL(other || pi).
template <class T>
GIPO_HD inline void add_gaussian_kl(const GaussianTerms<T>& other, const GaussianTerms<T>& pi, T kl_coef,
                                    GaussianGradient<T>& d) {
  const T ratio = pi.inverse_std / other.inverse_std;
  const T shift = (other.mean - pi.mean) * pi.inverse_std;
  d.mean -= kl_coef * shift * pi.inverse_std;
  d.log_std += kl_coef * (T(1) - ratio * ratio - shift * shift);
}

// A head of n choices. `mask` [n] may be null: all are valid; else at least one is.

// log(sum(exp(logits))) over the valid ones, without overflow.
template <class T>
GIPO_HD inline T log_sum_exp(const T* logits, const std::uint8_t* mask, std::size_t n) {
  std::size_t first = 0;
  while (first + 1 < n && !valid_choice(mask, first)) ++first;
  T top = logits[first], sum = 0;
  for (std::size_t k = first + 1; k < n; ++k) {
    if (valid_choice(mask, k)) top = larger_of(top, logits[k]);
  }
  for (std::size_t k = first; k < n; ++k) {
    if (valid_choice(mask, k)) sum += std::exp(logits[k] - top);
  }
  return top + std::log(sum);
}

// One choice of a head whose log_sum_exp is `norm`.
template <class T>
struct ChoiceTerms {
  T p, log_p;
};
template <class T>
GIPO_HD inline ChoiceTerms<T> choice_terms(T logit, bool valid, T norm) {
  if (!valid) return {T(0), kMaskedLogit<T>};
  const T log_p = logit - norm;
  return {std::exp(log_p), log_p};
}

// p = softmax(logits) [n] and its logarithm; returns the entropy. What is not valid has p = 0.
template <class T>
GIPO_HD inline T categorical_terms(const T* logits, const std::uint8_t* mask, std::size_t n, T* p, T* log_p) {
  const T norm = log_sum_exp(logits, mask, n);
  T entropy = 0;
  for (std::size_t k = 0; k < n; ++k) {
    const ChoiceTerms<T> choice = choice_terms(logits[k], valid_choice(mask, k), norm);
    log_p[k] = choice.log_p;
    p[k] = choice.p;
    entropy -= p[k] * log_p[k];
  }
  return entropy;
}

// Adds KL(other || pi), choice by choice, to `sum`.
template <class T>
GIPO_HD inline T add_categorical_kl(T sum, const T* other_p, const T* other_log_p, const T* log_p, std::size_t n) {
  for (std::size_t k = 0; k < n; ++k) sum += other_p[k] * (other_log_p[k] - log_p[k]);
  return sum;
}

// The derivative by one logit, but for what the action taken adds to its own.
template <class T>
GIPO_HD inline T choice_gradient(const ChoiceTerms<T>& choice, T d_log_prob, T entropy_coef, T entropy) {
  return choice.p * (entropy_coef * (choice.log_p + entropy) - d_log_prob);
}

// d_logits [n] of d_log_prob * log_prob(action) - entropy_coef * entropy + kl_coef * KL(other || pi); other_p may be
// null. Exactly zero where p is because of a mask, if other_p has the same one and the action is valid.
template <class T>
GIPO_HD inline void categorical_gradient(const T* p, const T* log_p, const T* other_p, std::size_t n,
                                         std::size_t action, T d_log_prob, T entropy_coef, T entropy, T kl_coef,
                                         T* d_logits) {
  for (std::size_t k = 0; k < n; ++k) {
    d_logits[k] = choice_gradient<T>({p[k], log_p[k]}, d_log_prob, entropy_coef, entropy);
    if (other_p) d_logits[k] += kl_coef * (p[k] - other_p[k]);
  }
  d_logits[action] += d_log_prob;
}

}  // namespace gipo
