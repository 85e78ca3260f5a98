// Forward and backward of a small network by a block of kSmallThreads.
#pragma once

#include <type_traits>

#include "gipo/learner/cuda/small_network.h"
#include "gipo/learner/cuda/tensor.cuh"

namespace gipo::cuda {

inline constexpr int kSmallWarps = kSmallThreads / 32;

// f(kind) with what a small network computes its products in, which the compiler knows. Halves gain nothing here.
template <class F>
void with_small_kind(ProductKind kind, F&& f) {
  switch (kind) {
    case ProductKind::kBf16x3:
    case ProductKind::kTf32x3:
      return f(std::integral_constant<ProductKind, ProductKind::kTf32x3>());
    case ProductKind::kTf32:
      return f(std::integral_constant<ProductKind, ProductKind::kTf32>());
    case ProductKind::kFloat:
      return f(std::integral_constant<ProductKind, ProductKind::kFloat>());
  }
}

// Begins the copy of a matrix [rows, columns] whose rows are `ld` apart, zeros around it up to [all_rows, whole eights].
__device__ inline void begin_matrix(float* to, const float* from, int ld, int rows, int columns, int all_rows) {
  const int stride = small_stride(columns), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool wide = ld % 4 == 0 && columns % 4 == 0 && reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
  const int at_once = wide ? 4 : 1, pieces = whole_eights(columns) / at_once;
  // Lanes that a row leaves over take the next rows.
  const int lanes = pieces > 16 ? 32 : pieces > 8 ? 16 : pieces > 4 ? 8 : pieces > 2 ? 4 : 2;
  const int rows_at_once = 32 / lanes, piece0 = lane % lanes;
  for (int row = warp * rows_at_once + lane / lanes; row < all_rows; row += kSmallWarps * rows_at_once) {
    for (int piece = piece0; piece < pieces; piece += lanes) {
      const int column = piece * at_once;
      const bool valid = row < rows && column < columns;
      const float* source = valid ? from + static_cast<std::size_t>(row) * ld + column : from;
      if (wide) {
        begin_copy<16>(to + row * stride + column, source, valid ? 16 : 0);
      } else {
        begin_copy<4>(to + row * stride + column, source, valid ? 4 : 0);
      }
    }
  }
}

__device__ inline void begin_weights(float* memory, const SmallNetwork& net, const float* parameters) {
  for (int i = 0; i < net.layers; ++i) {
    const SmallLayer& l = net.layer[i];
    const float* from = parameters + l.parameters;
    begin_matrix(memory + l.weights, from, l.in, l.out, l.in, whole_eights(l.out));
    for (int k = threadIdx.x; k < whole_eights(l.out); k += kSmallThreads) {
      begin_copy<4>(memory + l.biases + k, k < l.out ? from + l.in * l.out + k : from, k < l.out ? 4 : 0);
    }
  }
}

// From the inputs to the outputs of all layers, which must be there and whose copies must have ended. Ends with all threads
// at the same place.
template <ProductKind kKind>
__device__ inline void forward(float* memory, const SmallNetwork& net) {
  const int warp = threadIdx.x / 32;
  const float* x = memory + net.input;
  for (int i = 0; i < net.layers; ++i) {
    const SmallLayer& l = net.layer[i];
    const int ldx = small_stride(l.in), ldy = small_stride(l.out), depth = whole_eights(l.in);
    const int columns = whole_eights(l.out) / 8, tiles = net.rows / 16 * columns;
    const Activation activation = i + 1 < net.layers ? net.activation : Activation::kNone;
    const float *weights = memory + l.weights, *biases = memory + l.biases;
    float* y = memory + l.outputs;
#pragma unroll 1
    for (int tile = warp; tile < tiles; tile += kSmallWarps) {
      const int m0 = tile / columns * 16, n0 = tile % columns * 8;
      float sums[4] = {};
      tile_product<kKind>(
          sums, depth, [&](int row, int k) { return x[(m0 + row) * ldx + k]; },
          [&](int column, int k) { return weights[(n0 + column) * ldx + k]; });
      each_sum(sums, [&](int row, int column, float value) {
        y[(m0 + row) * ldy + n0 + column] = activated(value + biases[n0 + column], activation);
      });
    }
    __syncthreads();
    x = y;
  }
}

// From the derivatives by the outputs, in the last layer's delta with zeros beyond the outputs, to the gradient of all
// parameters. The derivatives of rows that are none must be zero.
template <ProductKind kKind>
__device__ inline void backward(float* memory, const SmallNetwork& net, float* gradient) {
  const int warp = threadIdx.x / 32;
  // First the derivatives of all layers, which wait for each other.
#pragma unroll 1
  for (int i = net.layers - 1; i > 0; --i) {
    const SmallLayer &l = net.layer[i], &under = net.layer[i - 1];
    const int ldx = small_stride(l.in), ldd = small_stride(l.out), depth = whole_eights(l.out);
    const int columns = whole_eights(l.in) / 8, tiles = net.rows / 16 * columns;
    const float *delta = memory + l.delta, *x = memory + under.outputs, *weights = memory + l.weights;
    float* below = memory + under.delta;
#pragma unroll 1
    for (int tile = warp; tile < tiles; tile += kSmallWarps) {
      const int m0 = tile / columns * 16, n0 = tile % columns * 8;
      float sums[4] = {};
      tile_product<kKind>(
          sums, depth, [&](int row, int k) { return delta[(m0 + row) * ldd + k]; },
          [&](int column, int k) { return weights[k * ldx + n0 + column]; });
      each_sum(sums, [&](int row, int column, float value) {
        const int at = (m0 + row) * ldx + n0 + column;
        below[at] = times_slope(value, x[at], net.activation);
      });
    }
    __syncthreads();
  }
  // Then all weights and biases. Warps and threads that a layer leaves over go on with the next.
  int tile = warp, k = kSmallThreads - 1 - static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int i = net.layers - 1; i >= 0; --i) {
    const SmallLayer& l = net.layer[i];
    const int ldx = small_stride(l.in), ldd = small_stride(l.out);
    const int columns = whole_eights(l.in) / 8, tiles = (l.out + 15) / 16 * columns;
    const float *delta = memory + l.delta, *x = memory + (i > 0 ? net.layer[i - 1].outputs : net.input);
    float* const out = gradient + l.parameters;
    const bool pairs = l.in % 2 == 0 && reinterpret_cast<std::uintptr_t>(out) % sizeof(float2) == 0;
#pragma unroll 1
    for (; tile < tiles; tile += kSmallWarps) {
      const int m0 = tile / columns * 16, n0 = tile % columns * 8;
      float sums[4] = {};
      tile_product<kKind>(
          sums, net.rows, [&](int row, int depth) { return delta[depth * ldd + m0 + row]; },
          [&](int column, int depth) { return x[depth * ldx + n0 + column]; });
      each_pair(sums, [&](int row, int column, float2 both) {
        if (m0 + row >= l.out || n0 + column >= l.in) return;
        float* const to = out + (m0 + row) * l.in + n0 + column;
        if (pairs) {
          *reinterpret_cast<float2*>(to) = both;
        } else {
          to[0] = both.x;
          if (n0 + column + 1 < l.in) to[1] = both.y;
        }
      });
    }
    tile -= tiles;
    for (; k < l.out; k += kSmallThreads) {
      float sum = 0;
#pragma unroll 8
      for (int row = 0; row < net.rows; ++row) sum += delta[row * ldd + k];
      out[l.in * l.out + k] = sum;
    }
    k -= l.out;
  }
}

}  // namespace gipo::cuda
