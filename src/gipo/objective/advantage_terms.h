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

// Generalised advantage estimation. Of the step after: V(s_{t+1}), zero after a termination, and its advantage.
template <class T>
struct GaeNext {
  T value, advantage = 0;
};

// Moves `next` on to this step.
template <class T>
GIPO_HD inline AdvantageTerm<T> gae_step(T reward, T value, T gamma, T lambda, GaeNext<T>& next) {
  const T delta = reward + gamma * next.value - value;
  next.advantage = delta + gamma * lambda * next.advantage;
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
GIPO_HD inline AdvantageTerm<T> vtrace_step(T reward, T value, const VtraceWeights<T>& weights,
                                            const VtraceLimits<T>& limits, VtraceNext<T>& next) {
  const T delta = weights.rho * (reward + limits.gamma * next.value - value);
  const T advantage = reward + limits.gamma * next.target - value;
  const T target = value + delta + limits.gamma * weights.trace * (next.target - next.value);
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
