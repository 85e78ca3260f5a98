// What the ways to make a tile of a product have in common: a block of threads, where a factor lies, and what is done to
// the sums.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gipo/learner/cuda/products.h"
#include "gipo/learner/cuda/tensor.cuh"

namespace gipo::cuda {

inline constexpr int kProductThreads = 256, kHalfThreads = kProductThreads / 2;

__device__ inline bool is_wide(const float* from, int ld) {
  return ld % 4 == 0 && reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
}

// Rows or columns of c from `first` on, below `limit`.
struct Operand {
  const float* from;
  int ld, first, limit;
  bool wide;  // rows begin at 16 bytes
  __device__ Operand(const float* from, int ld, int first, int limit)
      : from(from), ld(ld), first(first), limit(limit), wide(is_wide(from, ld)) {}
};

__device__ inline void read_four(float (&to)[4], const float* from, int left, bool wide) {
  if (wide) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    return;
  }
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    if (q < left) to[q] = from[q];
  }
}

constexpr int tile_stride(int tile) { return tile + 4; }

// From the sums of a tile [kTile, tile_stride] to c, neighbours by neighbours. Returns the squares of what this thread wrote.
// The loop is not unrolled: code that runs a few times must be short, for it comes from memory, too.
template <int kTile>
__device__ float write_tile(const Product& p, int limit, int m0, int n0, int split, const float* tile) {
  constexpr int kGroups = kTile / 4, kRowsAtOnce = kProductThreads / kGroups;
  const int column = threadIdx.x % kGroups * 4, n = n0 + column, left = min(4, p.n - n);
  if (left <= 0) return 0;
  float bias[4] = {};
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    if (p.bias && q < left) bias[q] = p.bias[n + q];
  }
  float* const c = p.c + split * p.split_stride + n;
  const float* const below = p.below ? p.below + n : nullptr;
  const bool wide = left == 4 && is_wide(c, p.ldc), wide_below = left == 4 && is_wide(below, p.ld_below);
  const int last = min(kTile, limit - m0);
  float next[4] = {}, squares = 0;
  const auto read_below = [&](int row) {
    if (below && row < last) read_four(next, below + static_cast<std::size_t>(m0 + row) * p.ld_below, left, wide_below);
  };
  int row = static_cast<int>(threadIdx.x) / kGroups;
  read_below(row);
#pragma unroll 1
  for (; row < last; row += kRowsAtOnce) {
    const float4 sums = *reinterpret_cast<const float4*>(tile + row * tile_stride(kTile) + column);
    float value[4] = {sums.x + bias[0], sums.y + bias[1], sums.z + bias[2], sums.w + bias[3]};
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      value[q] = below ? times_slope(value[q], next[q], p.activation) : activated(value[q], p.activation);
      squares += q < left ? value[q] * value[q] : 0.0f;
    }
    read_below(row + kRowsAtOnce);
    float* const to = c + static_cast<std::size_t>(m0 + row) * p.ldc;
    if (wide) {
      *reinterpret_cast<float4*>(to) = {value[0], value[1], value[2], value[3]};
    } else {
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        if (q < left) to[q] = value[q];
      }
    }
  }
  return squares;
}

// The sums of a over k from their shares [count, kTile]. Returns the one that this thread wrote.
template <int kTile>
__device__ float write_sums_of_a(const Product& p, int limit, int m0, int split, const float* shares, int count) {
  const int m = m0 + static_cast<int>(threadIdx.x);
  if (threadIdx.x >= kTile || m >= limit) return 0;
  float sum = 0;
#pragma unroll 4
  for (int k = 0; k < count; ++k) sum += shares[k * kTile + threadIdx.x];
  p.sums[split * p.split_stride + m] = sum;
  return sum;
}

__device__ inline float sum_of(float a, float b) { return a + b; }
__device__ inline float2 sum_of(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }

// To c, from the sums of the two halves of a block, of the same tile each: sums.each gives single ones or neighbours.
// put_shares() puts the shares [count, kTile] of the sums of a, where these are due, behind the tile. Returns the squares.
template <int kTile, class Sums, class PutShares>
__device__ float write_halves(const Product& p, int limit, int m0, int n0, int split, const Sums& sums, bool sum_a,
                              int count, PutShares&& put_shares, float* shared) {
  const bool second = threadIdx.x >= kHalfThreads;
  float* const shares = shared + kTile * tile_stride(kTile);
  const auto each = [&](auto&& f) {
    sums.each([&](int row, int column, auto value) {
      auto* const at = reinterpret_cast<decltype(value)*>(shared + row * tile_stride(kTile) + column);
      *at = f(*at, value);
    });
  };
  if (second) each([](auto, auto value) { return value; });
  if (sum_a) put_shares(shares);
  __syncthreads();
  if (!second) each([](auto first, auto value) { return sum_of(first, value); });
  const float sum = sum_a ? write_sums_of_a<kTile>(p, limit, m0, split, shares, count) : 0.0f;
  __syncthreads();
  return sum * sum + write_tile<kTile>(p, limit, m0, n0, split, shared);
}

}  // namespace gipo::cuda
