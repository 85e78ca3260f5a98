#pragma once

#include <algorithm>
#include <cmath>

namespace gipo {

// Of a range of floats or doubles.
template <class Range>
bool all_finite(const Range& values) {
  return std::ranges::all_of(values, [](auto v) { return std::isfinite(v); });
}

}  // namespace gipo
