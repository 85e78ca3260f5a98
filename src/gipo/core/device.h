#pragma once

// Marks a function that also runs on an accelerator. Such a function takes numbers and plain pointers, calls only others
// of its kind and the mathematical functions that every device has, and throws nothing.
#if !defined(GIPO_HD)
#if defined(__CUDACC__) || defined(__CUDA__) || defined(__HIPCC__)
#define GIPO_HD __host__ __device__
#else
#define GIPO_HD
#endif
#endif

namespace gipo {

// As std::min, std::max and std::clamp, which devices do not have; with the same result for NaN and for signed zeros.
template <class T>
GIPO_HD constexpr T smaller_of(T a, T b) {
  return b < a ? b : a;
}
template <class T>
GIPO_HD constexpr T larger_of(T a, T b) {
  return a < b ? b : a;
}
template <class T>
GIPO_HD constexpr T within(T x, T low, T high) {
  return x < low ? low : high < x ? high : x;
}

}  // namespace gipo
