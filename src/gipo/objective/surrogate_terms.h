// Every surrogate for one sample, as a functor (log ratio, advantage) -> SurrogateTerm. Compiles for host and device.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "gipo/core/device.h"

namespace gipo {

// Log ratios are clamped to +-kMaxLogRatio before anything is computed from them: no overflow for any finite input.
inline constexpr double kMaxLogRatio = 20.0;

template <class T>
GIPO_HD inline T clamped_log_ratio(T log_ratio) {
  constexpr T kLimit = static_cast<T>(kMaxLogRatio);
  return within(log_ratio, -kLimit, kLimit);
}

// How much a sample from mu counts under the centre of a trust region: pi_prox / mu, cut at `most`.
template <class T>
GIPO_HD inline T importance_weight(T log_centre_ratio, T most) {
  return smaller_of(std::exp(clamped_log_ratio(log_centre_ratio)), most);
}

// What a surrogate says of one sample: m in the gradient m A grad log pi, and minus the objective.
template <class T>
struct SurrogateTerm {
  T multiplier, loss;
};

// The functor's term for any finite input.
template <class T, class Functor>
GIPO_HD inline SurrogateTerm<T> surrogate_term(const Functor& functor, T log_ratio, T advantage) {
  constexpr T kLargest = std::numeric_limits<T>::max();
  SurrogateTerm<T> term = functor(clamped_log_ratio(log_ratio), advantage);
  term.loss = within(term.loss, -kLargest, kLargest);  // m A may overflow where m and A do not
  return term;
}

// GIPO's trust weights. multiplier = rho w; log_bound(s) is log of the largest rho w over rho > 1 where there is one:
// the cap of pull_back = both. Where there is none (laplacian with s > 1, cauchy with s >= 1: rho outgrows w) the
// gaussian's cap exp(s^2/2) stands in.
struct GaussianWeight {
  template <class T>
  GIPO_HD static T multiplier(T log_ratio, T sigma) {
    return std::exp(log_ratio - log_ratio * log_ratio / (2 * sigma * sigma));
  }
  GIPO_HD static double log_bound(double sigma) { return sigma * sigma / 2; }  // reached at rho = exp(s^2)
};

struct LaplacianWeight {
  template <class T>
  GIPO_HD static T multiplier(T log_ratio, T sigma) {
    return std::exp(log_ratio - std::fabs(log_ratio) / sigma);
  }
  // rho w = rho^(1 - 1/s) for rho > 1: falls from 1 when s < 1.
  GIPO_HD static double log_bound(double sigma) { return sigma <= 1 ? 0 : GaussianWeight::log_bound(sigma); }
};

struct CauchyWeight {
  template <class T>
  GIPO_HD static T multiplier(T log_ratio, T sigma) {
    const T x = log_ratio / sigma;
    return std::exp(log_ratio) / (1 + x * x);
  }
  // rho w has a local peak at log rho = 1 - sqrt(1 - s^2) when s < 1; far beyond it (rho > e) it grows again.
  GIPO_HD static double log_bound(double sigma) {
    if (sigma >= 1) return GaussianWeight::log_bound(sigma);
    const double peak = sigma * sigma / (1 + std::sqrt(1 - sigma * sigma));
    return peak - std::log1p(peak * peak / (sigma * sigma));
  }
};

// Which samples that pull the policy back to the one that chose them are left undamped.
enum class PullBack { kDamped, kPositive, kBoth };

template <class Weight, PullBack pull_back>
struct GipoTerm {
  double sigma_pos, sigma_neg, log_bound;

  template <class T>
  GIPO_HD SurrogateTerm<T> operator()(T log_ratio, T advantage) const {
    T m;
    if (pull_back != PullBack::kDamped && advantage > 0 && log_ratio < 0) {
      m = std::exp(log_ratio);
    } else if (pull_back == PullBack::kBoth && advantage < 0 && log_ratio > 0) {
      m = std::exp(smaller_of(log_ratio, static_cast<T>(log_bound)));
    } else {
      m = Weight::multiplier(log_ratio, static_cast<T>(advantage < 0 ? sigma_neg : sigma_pos));
    }
    return {m, -m * advantage};
  }
};

// GIPO whose width grows with the age of a sample, in updates: sigma (1 + age / gap)^growth.
template <class Weight, PullBack pull_back>
struct AgedGipoTerm {
  double sigma_pos, sigma_neg, gap, growth;

  GIPO_HD GipoTerm<Weight, pull_back> at(double age) const {
    const double wider = std::exp(growth * std::log(1 + larger_of(age, 0.0) / gap)), neg = sigma_neg * wider;
    return {sigma_pos * wider, neg, Weight::log_bound(neg)};
  }
};

// PPO's clipped objective, with the floor dual_clip * A under it for A < 0 (infinite: plain PPO).
struct ClippedRatioTerm {
  double epsilon, dual_clip;

  template <class T>
  GIPO_HD SurrogateTerm<T> operator()(T log_ratio, T advantage) const {
    const T rho = std::exp(log_ratio);
    const T low = static_cast<T>(1 - epsilon), high = static_cast<T>(1 + epsilon), cut = static_cast<T>(dual_clip);
    if (advantage < 0) {
      const T kept = smaller_of(larger_of(rho, low), cut);
      return {rho < low || rho > cut ? T(0) : rho, -kept * advantage};
    }
    return {advantage > 0 && rho > high ? T(0) : rho, -smaller_of(rho, high) * advantage};
  }
};

struct SapoTerm {
  double tau_pos, tau_neg;

  template <class T>
  GIPO_HD SurrogateTerm<T> operator()(T log_ratio, T advantage) const {
    const T rho = std::exp(log_ratio), tau = static_cast<T>(advantage < 0 ? tau_neg : tau_pos), x = tau * (rho - 1);
    // s = sigmoid(x) by e = exp(-|x|), so that neither s nor 1 - s cancels.
    const T e = std::exp(-std::fabs(x)), s = (x < 0 ? e : T(1)) / (1 + e);
    return {rho * 4 * e / ((1 + e) * (1 + e)), -(4 / tau) * s * advantage};
  }
};

struct NoClipTerm {
  template <class T>
  GIPO_HD SurrogateTerm<T> operator()(T log_ratio, T advantage) const {
    const T rho = std::exp(log_ratio);
    return {rho, -rho * advantage};
  }
};

struct CispoTerm {
  double epsilon;

  template <class T>
  GIPO_HD SurrogateTerm<T> operator()(T log_ratio, T advantage) const {
    const T weight = within(std::exp(log_ratio), static_cast<T>(1 - epsilon), static_cast<T>(1 + epsilon));
    return {weight, -weight * advantage};
  }
};

struct TruncatedTerm {
  double rho_max;

  template <class T>
  GIPO_HD SurrogateTerm<T> operator()(T log_ratio, T advantage) const {
    const T weight = smaller_of(std::exp(log_ratio), static_cast<T>(rho_max));
    return {weight, -weight * advantage};
  }
};

// The plain ratio, but nothing of samples whose log ratio is beyond `largest`: what that is, the whole batch decides
// (largest_kept).
struct SecondMomentTerm {
  double largest;

  template <class T>
  GIPO_HD SurrogateTerm<T> operator()(T log_ratio, T advantage) const {
    if (std::fabs(log_ratio) > static_cast<T>(largest)) return {T(0), T(0)};
    return NoClipTerm{}(log_ratio, advantage);
  }
};

// m2po: the largest |log ratio| that is kept. kept(bound): whether the mean square of all up to the bound is small enough.
// That mean grows with the bound: halving, over the bits of the numbers, finds it without sorting them.
template <class T, class Kept>
GIPO_HD inline T largest_bound(Kept&& kept) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  Bits low = 0, high = std::bit_cast<Bits>(static_cast<T>(kMaxLogRatio)) + 1;  // kept; not kept, or beyond all
  while (high - low > 1) {
    const Bits middle = low + (high - low) / 2;
    (kept(std::bit_cast<T>(middle)) ? low : high) = middle;
  }
  return std::bit_cast<T>(low);
}

struct ToprTerm {
  template <class T>
  GIPO_HD SurrogateTerm<T> operator()(T log_ratio, T advantage) const {
    const T weight = advantage < 0 ? smaller_of(std::exp(log_ratio), T(1)) : T(1);
    return {weight, -weight * advantage};
  }
};

struct CeGppoTerm {
  double epsilon, beta_low, beta_high;

  template <class T>
  GIPO_HD SurrogateTerm<T> operator()(T log_ratio, T advantage) const {
    const T rho = std::exp(log_ratio), low = static_cast<T>(1 - epsilon), high = static_cast<T>(1 + epsilon);
    T m = rho;
    if (advantage > 0 && rho > high) m = static_cast<T>(beta_high) * high;
    if (advantage < 0 && rho < low) m = static_cast<T>(beta_low) * low;
    return {m, -m * advantage};
  }
};

}  // namespace gipo
