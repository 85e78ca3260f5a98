#pragma once

#include <algorithm>
#include <cmath>

namespace gipo {

// Of a range of floats or doubles.
template <class Range>
bool all_finite(const Range& values) {
  return std::ranges::all_of(values, [](auto v) { return std::isfinite(v); });
}

// As floats, which is how networks read them: a double that is too large for one is not.
template <class Range>
bool all_finite_floats(const Range& values) {
  return std::ranges::all_of(values, [](auto v) { return std::isfinite(static_cast<float>(v)); });
}

}  // namespace gipo
