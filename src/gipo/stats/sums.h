#pragma once

#include <cstddef>
#include <span>

namespace gipo {

// f(0) + ... + f(n - 1), as four sums that need not wait for each other.
template <class F>
double sum_over(std::size_t n, F&& f) {
  double sums[4] = {};
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (std::size_t k = 0; k < 4; ++k) sums[k] += static_cast<double>(f(i + k));
  }
  for (; i < n; ++i) sums[0] += static_cast<double>(f(i));
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <class T>
double mean_of(std::span<const T> values) {
  if (values.empty()) return 0;
  return sum_over(values.size(), [&](std::size_t i) { return values[i]; }) / static_cast<double>(values.size());
}

// Around their mean.
template <class T>
double variance_of(std::span<const T> values, double mean) {
  if (values.empty()) return 0;
  const auto square = [&](std::size_t i) {
    const double distance = static_cast<double>(values[i]) - mean;
    return distance * distance;
  };
  return sum_over(values.size(), square) / static_cast<double>(values.size());
}

}  // namespace gipo
