#include "gipo/stats/quantile.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gipo/core/error.h"

namespace gipo {
namespace {

double interpolate(double low, double high, double fraction) {
  // Equal ends and whole positions first: infinite values would make inf - inf or 0 * inf of them.
  if (fraction == 0 || low == high) return low;
  return low + (high - low) * fraction;
}

// Moves the values that satisfy `in_front` to the front; returns their count. No branch depends on a value: on random
// data a mispredicted one costs more than the two writes.
template <class T, class Predicate>
std::size_t partition_front(std::span<T> values, Predicate in_front) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T value = values[i];
    values[i] = values[count];
    values[count] = value;
    count += in_front(value);
  }
  return count;
}

// As std::nth_element, without its mispredicted branches.
template <class T>
void select(std::span<T> values, std::size_t k) {
  // nth_element ends the search: on a short rest, and where unlucky pivots would make it quadratic.
  for (int rounds = 0; rounds < 24 && values.size() > 16; ++rounds) {
    const T a = values.front(), b = values[values.size() / 2], c = values.back();
    const T pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));
    const std::size_t below = partition_front(values, [pivot](T v) { return v < pivot; });
    if (k < below) {
      values = values.first(below);
      continue;
    }
    std::size_t settled = below;
    if (below == 0) {  // the pivot is the least: drop its copies, or end among them
      settled = partition_front(values, [pivot](T v) { return v <= pivot; });
      if (k < settled) return;
    }
    values = values.subspan(settled);
    k -= settled;
  }
  std::nth_element(values.begin(), values.begin() + k, values.end());
}

}  // namespace

template <class T>
void quantiles(std::span<T> values, std::span<const double> q, std::span<double> out) {
  GIPO_CHECK(q.size() == out.size() && std::is_sorted(q.begin(), q.end()));
  GIPO_CHECK(q.empty() || (q.front() >= 0 && q.back() <= 1));
  const bool has_nan = std::any_of(values.begin(), values.end(), [](T v) { return std::isnan(v); });
  if (values.empty() || has_nan) {  // NaN has no order: nth_element must not meet one
    std::fill(out.begin(), out.end(), values.empty() ? 0.0 : std::numeric_limits<double>::quiet_NaN());
    return;
  }
  // From the largest q down. Before each step values[0, end) are the smallest `end` values, so the search shrinks.
  std::size_t end = values.size();
  for (std::size_t i = q.size(); i-- > 0;) {
    const double position = q[i] * static_cast<double>(values.size() - 1);
    const auto k = static_cast<std::size_t>(position);
    select(values.first(end), k);
    if (k + 1 < end) {
      std::iter_swap(values.begin() + k + 1, std::min_element(values.begin() + k + 1, values.begin() + end));
      end = k + 2;
    }
    const T high = k + 1 < end ? values[k + 1] : values[k];
    out[i] = interpolate(values[k], high, position - static_cast<double>(k));
  }
}

template <class T>
double quantile(std::span<T> values, double q) {
  double out = 0;
  quantiles<T>(values, std::span<const double>(&q, 1), std::span<double>(&out, 1));
  return out;
}

template void quantiles<float>(std::span<float>, std::span<const double>, std::span<double>);
template void quantiles<double>(std::span<double>, std::span<const double>, std::span<double>);
template double quantile<float>(std::span<float>, double);
template double quantile<double>(std::span<double>, double);

}  // namespace gipo
