#pragma once

#include <cstddef>
#include <span>

namespace gipo {

// The sum of term(0) to term(n-1) in NumPy's order: one after the other below eight, then in eight running sums, in
// halves above 128. Rewards equal Gymnasium's to the last bit only when their sums are taken alike.
template <class T, class Term>
T numpy_sum(std::size_t first, std::size_t n, const Term& term) {
  if (n < 8) {
    T sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += term(first + i);
    return sum;
  }
  if (n > 128) {
    const std::size_t half = n / 2 - n / 2 % 8;
    return numpy_sum<T>(first, half, term) + numpy_sum<T>(first + half, n - half, term);
  }
  T r[8];
  for (std::size_t j = 0; j < 8; ++j) r[j] = term(first + j);
  std::size_t i = 8;
  for (; i + 8 <= n; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) r[j] += term(first + i + j);
  }
  T sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < n; ++i) sum += term(first + i);
  return sum;
}

template <class T>
T sum_of_squares(std::span<const T> x) {
  return numpy_sum<T>(0, x.size(), [x](std::size_t i) { return x[i] * x[i]; });
}

}  // namespace gipo
