// One step of the recursions over a segment that make advantages, which go from its last step to its first. Compiles for
// host and device.
#pragma once

#include <cmath>
#include <limits>

#include "gipo/core/device.h"
#include "gipo/objective/surrogate_terms.h"

namespace gipo {

template <class T>
struct AdvantageTerm {
  T advantage, target;
};

// How far the target of a step is above its value: add + keep * (the same of the step after), which is zero behind the
// end of a segment. Both recursions below are of this form, so that one can also go over many steps at once.
template <class T>
struct Excess {
  T add, keep;
};
// Of two neighbours, or of two rows of neighbours, as one. Where nothing is kept, nothing later counts, not even NaN.
template <class T>
GIPO_HD inline Excess<T> joined(const Excess<T>& one, const Excess<T>& after) {
  return {one.keep == 0 ? one.add : one.add + one.keep * after.add, one.keep == 0 ? T(0) : one.keep * after.keep};
}

// Generalised advantage estimation. Of the step after: V(s_{t+1}), zero after a termination, and its advantage.
template <class T>
struct GaeNext {
  T value, advantage = 0;
};

template <class T>
GIPO_HD inline Excess<T> gae_excess(T reward, T value, T next_value, T gamma, T lambda) {
  return {reward + gamma * next_value - value, gamma * lambda};
}

// Moves `next` on to this step.
template <class T>
GIPO_HD inline AdvantageTerm<T> gae_step(T reward, T value, T gamma, T lambda, GaeNext<T>& next) {
  const Excess<T> excess = gae_excess(reward, value, next.value, gamma, lambda);
  next.advantage = excess.add + excess.keep * next.advantage;
  next.value = value;
  return {next.advantage, next.advantage + value};
}

template <class T>
struct VtraceLimits {
  T gamma, lambda, rho_bar, c_bar;
};

// V-trace. Of the step after: V(s_{t+1}) and its target v_{t+1}; at the end of a segment they are the same.
template <class T>
struct VtraceNext {
  T value, target;
};

// What a step's ratio weighs: its temporal difference, and what comes after it.
template <class T>
struct VtraceWeights {
  T rho, trace;
};
template <class T>
GIPO_HD inline VtraceWeights<T> vtrace_weights(T log_ratio, const VtraceLimits<T>& limits) {
  const T rho = std::exp(clamped_log_ratio(log_ratio));
  return {smaller_of(limits.rho_bar, rho), limits.lambda * smaller_of(limits.c_bar, rho)};
}

template <class T>
GIPO_HD inline Excess<T> vtrace_excess(T reward, T value, T next_value, const VtraceWeights<T>& weights,
                                       const VtraceLimits<T>& limits) {
  return {weights.rho * (reward + limits.gamma * next_value - value), limits.gamma * weights.trace};
}
template <class T>
GIPO_HD inline T vtrace_advantage(T reward, T value, T next_target, const VtraceLimits<T>& limits) {
  return reward + limits.gamma * next_target - value;
}

template <class T>
GIPO_HD inline AdvantageTerm<T> vtrace_step(T reward, T value, const VtraceWeights<T>& weights,
                                            const VtraceLimits<T>& limits, VtraceNext<T>& next) {
  const Excess<T> excess = vtrace_excess(reward, value, next.value, weights, limits);
  const T advantage = vtrace_advantage(reward, value, next.target, limits);
  const T target = value + excess.add + excess.keep * (next.target - next.value);
  next = {value, target};
  return {advantage, target};
}
template <class T>
GIPO_HD inline AdvantageTerm<T> vtrace_step(T reward, T value, T log_ratio, const VtraceLimits<T>& limits,
                                            VtraceNext<T>& next) {
  return vtrace_step(reward, value, vtrace_weights(log_ratio, limits), limits, next);
}

// The factor that brings values of this deviation, none larger than `largest`, to a deviation of 1. A spread within the
// rounding of T is none: it must not be blown up to 1.
template <class T>
GIPO_HD inline double normalising_factor(double deviation, T largest) {
  const bool constant = deviation <= static_cast<double>(largest * std::numeric_limits<T>::epsilon());
  return constant ? 0.0 : 1 / deviation;
}
template <class T>
GIPO_HD inline T normalised(T value, double mean, double factor) {
  return static_cast<T>((static_cast<double>(value) - mean) * factor);
}

}  // namespace gipo
