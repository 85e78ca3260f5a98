// Products of small tiles by one warp, from wherever the factors lie.
#pragma once

#include "gipo/kernels/dense.h"
#include "gipo/learner/cuda/ptx.cuh"
#include "gipo/learner/product_kind.h"

namespace gipo::cuda {

// A factor for the tensor cores: its first ten bits, rounded, and with two parts the rest.
template <int kParts, int kCount>
struct Factors {
  std::uint32_t parts[kParts][kCount];
  __device__ void set(int i, float x) {
    parts[0][i] = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    if constexpr (kParts == 2) parts[1][i] = __float_as_uint(x - __uint_as_float(parts[0][i]));
  }
};

// sums of a tile of 16 x 8: lane / 4 and 8 more are the rows, twice lane % 4 and 1 more the columns.
// a(row, k) and b(column, k) are the factors, k below `depth`, a multiple of 8.
template <ProductKind kKind, class A, class B>
__device__ inline void tile_product(float (&sums)[4], int depth, A&& a, B&& b) {
  const int lane = threadIdx.x % 32, group = lane / 4, place = lane % 4;
  if constexpr (kKind == ProductKind::kFloat) {
#pragma unroll 4
    for (int k = 0; k < depth; ++k) {
      const float x[2] = {a(group, k), a(group + 8, k)}, y[2] = {b(2 * place, k), b(2 * place + 1, k)};
#pragma unroll
      for (int q = 0; q < 4; ++q) sums[q] += x[q / 2] * y[q % 2];
    }
  } else {
    constexpr int kParts = kKind == ProductKind::kTf32x3 ? 2 : 1;
    float small[2][4] = {};
#pragma unroll 4
    for (int k = 0; k < depth; k += 8) {
      Factors<kParts, 4> x;
      Factors<kParts, 2> y;
#pragma unroll
      for (int q = 0; q < 4; ++q) x.set(q, a(group + q % 2 * 8, k + place + q / 2 * 4));
#pragma unroll
      for (int q = 0; q < 2; ++q) y.set(q, b(group, k + place + q * 4));
      if constexpr (kParts == 2) {  // sums of their own, which do not wait for each other
        multiply_add(small[0], x.parts[1], y.parts[0]);
        multiply_add(small[1], x.parts[0], y.parts[1]);
      }
      multiply_add(sums, x.parts[0], y.parts[0]);
    }
    if constexpr (kParts == 2) {
#pragma unroll
      for (int q = 0; q < 4; ++q) sums[q] += small[0][q] + small[1][q];
    }
  }
}
// f(row, column, value) of each sum that this lane has.
template <class F>
__device__ inline void each_sum(const float (&sums)[4], F&& f) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int q = 0; q < 4; ++q) f(lane / 4 + q / 2 * 8, lane % 4 * 2 + q % 2, sums[q]);
}

// The same of two neighbours in a row, from an even column on.
template <class F>
__device__ inline void each_pair(const float (&sums)[4], F&& f) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int q = 0; q < 2; ++q) f(lane / 4 + q * 8, lane % 4 * 2, float2{sums[2 * q], sums[2 * q + 1]});
}

__device__ inline float activated(float x, Activation activation) {
  if (activation == Activation::kTanh) return short_tanh(x);
  if (activation == Activation::kRelu) return x < 0.0f ? 0.0f : x;  // NaN stays NaN
  return x;
}
__device__ inline float times_slope(float x, float output, Activation activation) {
  if (activation == Activation::kTanh) return x * (1.0f - output * output);
  if (activation == Activation::kRelu) return output > 0.0f ? x : 0.0f;
  return x;
}

}  // namespace gipo::cuda
