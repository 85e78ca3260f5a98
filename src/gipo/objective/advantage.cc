#include "gipo/objective/advantage.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gipo/core/error.h"
#include "gipo/objective/surrogate.h"
#include "gipo/stats/sums.h"

namespace gipo {
namespace {

template <class T>
void check_shapes(const SegmentView<T>& segment, std::span<T> advantage, std::span<T> target) {
  const std::size_t steps = segment.reward.size();
  GIPO_CHECK(segment.value.size() == steps + 1);
  GIPO_CHECK(advantage.size() == steps && target.size() == steps);
}

// Truncation is not failure: bootstrap from the last observation. After a termination nothing follows.
template <class T>
T value_after(const SegmentView<T>& segment) {
  return segment.terminated ? T(0) : segment.value.back();
}

}  // namespace

template <class T>
void gae(const SegmentView<T>& segment, T gamma, T lambda, std::span<T> advantage, std::span<T> target) {
  check_shapes(segment, advantage, target);
  T next_value = value_after(segment), next_advantage = 0;
  for (std::size_t t = segment.reward.size(); t-- > 0;) {
    const T value = segment.value[t];
    const T delta = segment.reward[t] + gamma * next_value - value;
    next_advantage = delta + gamma * lambda * next_advantage;
    advantage[t] = next_advantage;
    target[t] = next_advantage + value;
    next_value = value;
  }
}

template <class T>
void vtrace(const SegmentView<T>& segment, std::span<const T> log_ratio, const VtraceOptions& options,
            std::span<T> advantage, std::span<T> target) {
  check_shapes(segment, advantage, target);
  GIPO_CHECK(log_ratio.size() == segment.reward.size());
  const T gamma = static_cast<T>(options.gamma), lambda = static_cast<T>(options.lambda);
  const T rho_bar = static_cast<T>(options.rho_bar), c_bar = static_cast<T>(options.c_bar);
  const T limit = static_cast<T>(kMaxLogRatio);
  T next_value = value_after(segment);  // V(s_{t+1})
  T next_target = next_value;           // v_{t+1}
  for (std::size_t t = segment.reward.size(); t-- > 0;) {
    const T value = segment.value[t], reward = segment.reward[t];
    const T rho = std::exp(std::clamp(log_ratio[t], -limit, limit));
    const T delta = std::min(rho_bar, rho) * (reward + gamma * next_value - value);
    const T trace = lambda * std::min(c_bar, rho);
    advantage[t] = reward + gamma * next_target - value;
    target[t] = value + delta + gamma * trace * (next_target - next_value);
    next_target = target[t];
    next_value = value;
  }
}

template <class T>
void normalise(std::span<T> values) {
  T largest = 0;
  for (const T v : values) largest = std::max(largest, std::abs(v));
  const double mean = mean_of<T>(values), deviation = std::sqrt(variance_of<T>(values, mean));
  // A spread within the rounding of T is none: it must not be blown up to 1.
  const bool constant = deviation <= static_cast<double>(largest * std::numeric_limits<T>::epsilon());
  const double factor = constant ? 0.0 : 1 / deviation;
  for (T& v : values) v = static_cast<T>((static_cast<double>(v) - mean) * factor);
}

#define GIPO_INSTANTIATE(T)                                                                              \
  template void gae<T>(const SegmentView<T>&, T, T, std::span<T>, std::span<T>);                         \
  template void vtrace<T>(const SegmentView<T>&, std::span<const T>, const VtraceOptions&, std::span<T>, \
                          std::span<T>);                                                                 \
  template void normalise<T>(std::span<T>);
GIPO_INSTANTIATE(float)
GIPO_INSTANTIATE(double)
#undef GIPO_INSTANTIATE

}  // namespace gipo
