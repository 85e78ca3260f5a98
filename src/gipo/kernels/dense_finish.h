// What follows a product: activations, and products with their derivative. Part of dense_impl.h; see there for what may be
// used here.
#pragma once

#include "gipo/kernels/dense.h"
#include "gipo/kernels/dense_vector.h"

namespace gipo {
namespace {

// What is done with a finished sum: the activation, or, where `output` is given, times the activation's derivative there.
template <class T>
struct Finish {
  Activation activation = Activation::kNone;
  const T* output = nullptr;  // [rows, columns] the activation's
  std::size_t stride = 0;     // of its rows
};

template <class T>
inline Vec<T> relu_of(Vec<T> v) {
  return v < Vec<T>{} ? Vec<T>{} : v;  // NaN stays NaN
}
template <class T>
inline Vec<T> times_relu_slope(Vec<T> v, Vec<T> output) {
  return output > Vec<T>{} ? v : Vec<T>{};
}
template <class T>
inline Vec<T> times_tanh_slope(Vec<T> v, Vec<T> output) {
  return v * (T(1) - output * output);
}

// values [rows, columns] = finish(values); their rows are `stride` apart.
template <class T>
void finish_rows(T* values, std::size_t stride, std::size_t rows, std::size_t columns, const Finish<T>& f) {
  if (f.activation == Activation::kNone) return;
  const auto each = [&](auto&& finish) __attribute__((always_inline)) {
    const T* output = f.output ? f.output : values;  // not read where there is none
    const std::size_t output_stride = f.output ? f.stride : stride;
    T* row = values;
    for (std::size_t r = 0; r < rows; ++r, row += stride, output += output_stride) {
      std::size_t i = 0;
      const auto some = [&]<std::size_t N>() __attribute__((always_inline)) {
        Vec<T> v[N];
        unrolled<N>([&](std::size_t k) { v[k] = load(row + i + k * kLanes<T>); });
        finish(v, output + i);
        unrolled<N>([&](std::size_t k) { store(row + i + k * kLanes<T>, v[k]); });
      };
      for (; i + kWidth<T> <= columns; i += kWidth<T>) some.template operator()<kVectors>();
      for (; i + kLanes<T> <= columns; i += kLanes<T>) some.template operator()<1>();
      if (i == columns) continue;
      Vec<T> v[1] = {load_some(row + i, columns - i)};
      alignas(kVectorBytes) T rest[kLanes<T>] = {};
      for (std::size_t k = i; k < columns; ++k) rest[k - i] = output[k];
      finish(v, rest);
      store_some(row + i, v[0], columns - i);
    }
  };
  const auto each_vector = [&](auto&& of) __attribute__((always_inline)) {
    each([&]<std::size_t N>(Vec<T>(&v)[N], const T* output) __attribute__((always_inline)) {
      unrolled<N>([&](std::size_t k) { v[k] = of(v[k], load(output + k * kLanes<T>)); });
    });
  };
  if (f.output && f.activation == Activation::kTanh) {
    each_vector(times_tanh_slope<T>);
  } else if (f.output && f.activation == Activation::kRelu) {
    each_vector(times_relu_slope<T>);
  } else if (f.activation == Activation::kTanh) {
    each([](auto& v, const T*) { tanh_of(v); });
  } else if (f.activation == Activation::kRelu) {
    each_vector([](Vec<T> v, Vec<T>) { return relu_of<T>(v); });
  }
}

}  // namespace
}  // namespace gipo
