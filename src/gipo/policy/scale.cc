#include "gipo/policy/scale.h"

#include <cmath>

#include "gipo/core/error.h"
#include "gipo/kernels/dense.h"

namespace gipo {
namespace {

constexpr float kLimit = 10.0f;  // of normalised observations and rewards
constexpr double kMinVariance = 1e-8;

}  // namespace

ObservationScale ObservationScale::identity(std::size_t dims) {
  ObservationScale scale;
  scale.mean.assign(dims, 0.0f);
  scale.inverse_std.assign(dims, 1.0f);
  return scale;
}

void ObservationScale::set(const RunningMoments& moments) {
  GIPO_CHECK(moments.dims() == mean.size());
  if (moments.count() < 2) return;
  limit = kLimit;
  for (std::size_t d = 0; d < mean.size(); ++d) {
    mean[d] = static_cast<float>(moments.mean(d));
    inverse_std[d] = static_cast<float>(1.0 / std::sqrt(moments.variance(d) + kMinVariance));
  }
}

RunningMoments ObservationScale::as_moments(double count) const {
  std::vector<double> variance;
  for (const double inverse : inverse_std) variance.push_back(std::max(0.0, 1 / (inverse * inverse) - kMinVariance));
  return {count, {mean.begin(), mean.end()}, variance};
}

template <class T>
void ObservationScale::apply(std::span<const float> rows, T* out) const {
  dense_kernels<T>().scale(rows.data(), rows.size() / mean.size(), mean.size(), mean.data(), inverse_std.data(), limit,
                           out);
}

RewardScale::RewardScale(const RunningMoments& returns) {
  GIPO_CHECK(returns.dims() == 1);
  if (returns.count() < 2) return;
  factor = static_cast<float>(1.0 / std::sqrt(returns.variance(0) + kMinVariance));
  limit = kLimit;
}

template void ObservationScale::apply<float>(std::span<const float>, float*) const;
template void ObservationScale::apply<double>(std::span<const float>, double*) const;

}  // namespace gipo
