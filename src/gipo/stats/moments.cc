#include "gipo/stats/moments.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/kernels/dense.h"

namespace gipo {

void ColumnSums::set(std::span<const float> rows, std::size_t first, std::size_t width) {
  GIPO_CHECK(width > 0 && first + width <= sum_.size());
  const std::size_t n = rows.size() / width;
  count_ = static_cast<double>(n);
  if (n == 0) return;
  double* from = from_.data() + first;
  std::copy_n(rows.begin(), width, from);
  dense_kernels<float>().moments(rows.data(), n, width, from, sum_.data() + first, square_.data() + first);
}

RunningMoments::RunningMoments(double count, std::vector<double> mean, const std::vector<double>& variance)
    : count_(count), mean_(std::move(mean)) {
  GIPO_CHECK(variance.size() == mean_.size());
  for (const double v : variance) square_.push_back(v * count);
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

}  // namespace gipo
