#pragma once

#include <span>

namespace gipo {

// The q-quantile by linear interpolation between order statistics (NumPy's default): with h = q (n - 1) it lies the
// fraction h - floor(h) of the way from x_(floor h) to x_(floor h + 1). Reorders `values`; linear time.
// Empty: 0. Any NaN: NaN. T is float or double; q in [0, 1].
template <class T>
double quantile(std::span<T> values, double q);

// Several at once, for less than each alone: `q` ascending, out[i] is the q[i]-quantile.
template <class T>
void quantiles(std::span<T> values, std::span<const double> q, std::span<double> out);

}  // namespace gipo
