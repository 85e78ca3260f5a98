// LayerNorm over the width of a layer. Part of dense_impl.h; see there for what may be used here.
#pragma once

#include <cmath>

#include "gipo/kernels/dense.h"
#include "gipo/kernels/dense_product.h"
#include "gipo/kernels/dense_vector.h"

namespace gipo {
namespace {

// A sum along a row, of vectors and of the single values at its end.
template <class T>
struct RowSum {
  Vec<T> vectors{};
  T singles = 0;
  void add(const Vec<T>& v) { vectors += v; }
  void add(T v) { singles += v; }
  T value() const { return total<T>(vectors) + singles; }
};

// How f of along_row reads and writes: a vector of values, or one.
template <class T>
struct ByVector {
  Vec<T> operator()(const T* p) const { return load(p); }
  void put(T* p, const Vec<T>& v) const { store(p, v); }
};
template <class T>
struct BySingle {
  T operator()(const T* p) const { return *p; }
  void put(T* p, T v) const { *p = v; }
};

template <class T, class F>
inline void along_row(std::size_t width, F&& f) {
  std::size_t i = 0;
  for (; i + kLanes<T> <= width; i += kLanes<T>) f(ByVector<T>{}, i);
  for (; i < width; ++i) f(BySingle<T>{}, i);
}

template <class T>
void layer_norm(const T* x, const T* gain, const T* shift, T* z, T* mean, T* inverse_std, std::size_t width,
                std::size_t rows) {
  for (std::size_t r = 0; r < rows; ++r, x += width, z += width) {
    RowSum<T> sum, square;
    along_row<T>(width, [&](auto at, std::size_t i) { sum.add(at(x + i)); });
    const T m = sum.value() / T(width);
    along_row<T>(width, [&](auto at, std::size_t i) {
      const auto d = at(x + i) - m;
      square.add(d * d);
    });
    const T scale = T(1) / std::sqrt(square.value() / T(width) + T(kNormEpsilon));
    along_row<T>(
        width, [&](auto at, std::size_t i) { at.put(z + i, (at(x + i) - m) * scale * at(gain + i) + at(shift + i)); });
    mean[r] = m;
    inverse_std[r] = scale;
  }
}

template <class T>
void layer_norm_backward(const T* x, const T* mean, const T* inverse_std, const T* gain, T* delta, T* d_gain,
                         T* d_shift, std::size_t width, std::size_t rows, Activation activation) {
  for (std::size_t i = 0; i < width; ++i) d_gain[i] = d_shift[i] = T(0);
  for (std::size_t r = 0; r < rows; ++r, x += width, delta += width) {
    const T m = mean[r], scale = inverse_std[r];
    RowSum<T> sum, product;
    along_row<T>(width, [&](auto at, std::size_t i) {
      const auto normalised = (at(x + i) - m) * scale, d = at(delta + i), g = d * at(gain + i);
      at.put(d_gain + i, at(d_gain + i) + d * normalised);
      at.put(d_shift + i, at(d_shift + i) + d);
      sum.add(g);
      product.add(g * normalised);
    });
    const T average = sum.value() / T(width), slope = product.value() / T(width);
    along_row<T>(width, [&](auto at, std::size_t i) {
      const auto normalised = (at(x + i) - m) * scale;
      at.put(delta + i, (at(delta + i) * at(gain + i) - average - normalised * slope) * scale);
    });
    finish_rows<T>(delta, 0, 1, width, {activation, x, 0});
  }
}

}  // namespace
}  // namespace gipo
