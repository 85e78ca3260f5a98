#include "gipo/objective/advantage.h"

#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/objective/advantage_terms.h"
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
  GaeNext<T> next{value_after(segment)};
  for (std::size_t t = segment.reward.size(); t-- > 0;) {
    const AdvantageTerm<T> term = gae_step(segment.reward[t], segment.value[t], gamma, lambda, next);
    advantage[t] = term.advantage;
    target[t] = term.target;
  }
}

template <class T>
void vtrace(const SegmentView<T>& segment, std::span<const T> log_ratio, const VtraceOptions& options,
            std::span<T> advantage, std::span<T> target) {
  check_shapes(segment, advantage, target);
  GIPO_CHECK(log_ratio.size() == segment.reward.size());
  const VtraceLimits<T> limits{static_cast<T>(options.gamma), static_cast<T>(options.lambda),
                               static_cast<T>(options.rho_bar), static_cast<T>(options.c_bar)};
  VtraceNext<T> next{value_after(segment), value_after(segment)};
  for (std::size_t t = segment.reward.size(); t-- > 0;) {
    const AdvantageTerm<T> term = vtrace_step(segment.reward[t], segment.value[t], log_ratio[t], limits, next);
    advantage[t] = term.advantage;
    target[t] = term.target;
  }
}

template <class T>
void normalise(std::span<T> values) {
  T largest = 0;
  for (const T v : values) largest = std::max(largest, std::abs(v));
  const double mean = mean_of<T>(values), deviation = std::sqrt(variance_of<T>(values, mean));
  const double factor = normalising_factor(deviation, largest);
  for (T& v : values) v = normalised(v, mean, factor);
}

bool without_variance(std::span<const double> returns) {
  return std::ranges::all_of(returns, [&](double r) { return r == returns.front(); });
}

void group_advantages(std::span<const double> returns, bool scale, std::span<double> advantage) {
  GIPO_CHECK(returns.size() >= 2 && advantage.size() == returns.size());
  if (without_variance(returns)) {  // rounding of the mean must not make a difference where there is none
    std::ranges::fill(advantage, 0.0);
    return;
  }
  const auto n = static_cast<double>(returns.size());
  double mean = 0, squares = 0;
  for (const double r : returns) mean += r / n;
  for (const double r : returns) squares += (r - mean) * (r - mean);
  const double divisor = scale ? std::sqrt(squares / (n - 1)) + kGroupEpsilon : 1;
  std::ranges::transform(returns, advantage.begin(), [&](double r) { return (r - mean) / divisor; });
}

float discounted_returns(std::span<const float> reward, double gamma, float after, std::span<float> target) {
  GIPO_CHECK(target.size() == reward.size());
  for (std::size_t t = reward.size(); t-- > 0;) {
    after = target[t] = reward[t] + static_cast<float>(gamma) * after;
  }
  return after;
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
