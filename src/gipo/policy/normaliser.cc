#include "gipo/policy/normaliser.h"

#include <algorithm>
#include <cmath>

#include "gipo/core/bytes.h"
#include "gipo/core/error.h"
#include "gipo/policy/dense.h"

namespace gipo {
namespace {

constexpr float kLimit = 10.0f;  // of normalised observations and rewards
constexpr double kMinVariance = 1e-8;

}  // namespace

void ColumnSums::set(std::span<const float> rows) {
  const std::size_t dims = sum_.size(), n = rows.size() / dims;
  count_ = static_cast<double>(n);
  if (n == 0) return;
  std::copy_n(rows.begin(), dims, from_.begin());
  dense_kernels<float>().moments(rows.data(), n, dims, from_.data(), sum_.data(), square_.data());
}

// Merged with the rows' own moments: stable wherever the observations lie.
void RunningMoments::add(const ColumnSums& rows) {
  const double n = rows.count_, total = count_ + n;
  if (n == 0) return;
  const double inverse = 1 / n, share = n / total;
  for (std::size_t d = 0; d < mean_.size(); ++d) {
    const double offset = rows.sum_[d] * inverse;
    const double shift = rows.from_[d] + offset - mean_[d];
    square_[d] += std::max(0.0, rows.square_[d] - offset * rows.sum_[d]) + shift * shift * count_ * share;
    mean_[d] += shift * share;
  }
  count_ = total;
}

void RunningMoments::save(ByteWriter& out) const {
  out.value(count_);
  out.array(mean_);
  out.array(square_);
}

void RunningMoments::load(ByteReader& in) {
  RunningMoments saved(mean_.size());
  saved.count_ = in.value<double>();
  in.array_into(std::span<double>(saved.mean_));
  in.array_into(std::span<double>(saved.square_));
  // NaN is in no range. Within these nothing that is added later overflows.
  const auto mean_of_floats = [](double v) { return std::abs(v) <= std::numeric_limits<float>::max(); };
  const auto sum_of_squares = [](double v) { return v >= 0 && v <= 1e300; };
  if (!(saved.count_ >= 0 && saved.count_ <= 1e18) ||
      !std::all_of(saved.mean_.begin(), saved.mean_.end(), mean_of_floats) ||
      !std::all_of(saved.square_.begin(), saved.square_.end(), sum_of_squares)) {
    throw Error("saved moments are not those of any numbers");
  }
  *this = std::move(saved);
}

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
