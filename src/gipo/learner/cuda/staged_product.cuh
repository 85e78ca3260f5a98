// Sums of a tile whose factors are copied to shared memory as they are: in float, or on the tensor cores in parts of ten
// bits.
#pragma once

#include <algorithm>

#include "gipo/learner/cuda/product_operand.cuh"
#include "gipo/learner/cuda/tensor.cuh"

namespace gipo::cuda {

inline constexpr int kStagedDepth = 64, kStages = 3;  // so much of k at once

// A tile of an operand in shared memory, kTile rows or columns of c by kStagedDepth of k, as it lies in memory: with k inside
// or outside. The padding spreads what a warp reads over the banks.
template <int kTile, bool kInside>
struct StagedTile {
  static constexpr int kInner = kInside ? kStagedDepth : kTile, kOuter = kInside ? kTile : kStagedDepth;
  static constexpr int kStride = kInner + (kInside ? 4 : 8), kFloats = kOuter * kStride;

  __device__ static float at(const float* tile, int place, int k) {
    return kInside ? tile[place * kStride + k] : tile[k * kStride + place];
  }

  // Begins the copy of places [first, limit) and k of [k0, k_limit); zeros beyond. wide: rows begin at 16 bytes.
  __device__ static void load(float* tile, const float* from, int ld, int first, int limit, int k0, int k_limit,
                              bool wide) {
    const int outer_limit = kInside ? limit - first : k_limit - k0,
              inner_limit = kInside ? k_limit - k0 : limit - first;
    const float* corner =
        from + (kInside ? static_cast<std::size_t>(first) * ld + k0 : static_cast<std::size_t>(k0) * ld + first);
    if (wide) return copy<4, 16>(tile, corner, ld, outer_limit, inner_limit);
    copy<1, 1>(tile, corner, ld, outer_limit, inner_limit);
  }

 private:
  // So many floats at once; a thread keeps its place in a row and goes down the rows.
  template <int kFloatsAtOnce, int kUnroll>
  __device__ static void copy(float* tile, const float* corner, int ld, int outer_limit, int inner_limit) {
    constexpr int kPerRow = kInner / kFloatsAtOnce, kStep = kProductThreads / kPerRow;
    const int inner = threadIdx.x % kPerRow * kFloatsAtOnce, outer = threadIdx.x / kPerRow;
    const int left = 4 * min(kFloatsAtOnce, max(0, inner_limit - inner));
    const float* from = corner + static_cast<std::size_t>(outer) * ld + inner;
    float* to = tile + outer * kStride + inner;
#pragma unroll kUnroll
    for (int j = 0; j < kOuter; j += kStep) {
      const int valid = outer + j < outer_limit ? left : 0;
      begin_copy<4 * kFloatsAtOnce>(to + j * kStride, valid > 0 ? from : corner, valid);
      from += static_cast<std::size_t>(kStep) * ld;
    }
  }
};

// The sums of a tile that a thread has. The block's halves have the same places, and every other eight of k.
// On the tensor cores: each of four warps has a quarter of the tile, in blocks of 16 x 8.
template <int kTile, int kParts>
struct TensorSums {
  static constexpr int kHalf = kTile / 2, kRows = kHalf / 16, kColumns = kHalf / 8;
  float sums[kRows][kColumns][4] = {};

  template <class TileA, class TileB>
  __device__ void add(const float* a, const float* b, int k) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, group = lane / 4, place = lane % 4;
    const int m0 = warp / 2 * kHalf + group, n0 = warp % 2 * kHalf + group;
    Factors<kParts, 4> x[kRows];
    Factors<kParts, 2> y[kColumns];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int q = 0; q < 4; ++q) x[i].set(q, TileA::at(a, m0 + 16 * i + q % 2 * 8, k + place + q / 2 * 4));
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int q = 0; q < 2; ++q) y[j].set(q, TileB::at(b, n0 + 8 * j, k + place + q * 4));
    }
    const auto each_pair = [&](int part_x, int part_y) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) multiply_add(sums[i][j], x[i].parts[part_x], y[j].parts[part_y]);
      }
    };
    if constexpr (kParts == 2) {  // the small products first
      each_pair(1, 0);
      each_pair(0, 1);
    }
    each_pair(0, 0);
  }

  // f(row, column, value) for each, within the tile.
  template <class F>
  __device__ void each(F&& f) const {
    const int warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        each_sum(sums[i][j], [&](int row, int column, float value) {
          f(warp / 2 * kHalf + 16 * i + row, warp % 2 * kHalf + 8 * j + column, value);
        });
      }
    }
  }
};

// The same in float.
template <int kTile>
struct FloatSums {
  static constexpr int kRows = kTile / 8, kColumns = kTile / 16;
  float sums[kRows][kColumns] = {};

  template <class TileA, class TileB>
  __device__ void add(const float* a, const float* b, int first_k) {
    const int m0 = threadIdx.x % kHalfThreads / 16, n0 = threadIdx.x % 16;
#pragma unroll 4
    for (int k = first_k; k < first_k + 8; ++k) {
      float x[kRows], y[kColumns];
#pragma unroll
      for (int i = 0; i < kRows; ++i) x[i] = TileA::at(a, m0 + 8 * i, k);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) y[j] = TileB::at(b, n0 + 16 * j, k);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sums[i][j] += x[i] * y[j];
      }
    }
  }

  template <class F>
  __device__ void each(F&& f) const {
    const int m0 = threadIdx.x % kHalfThreads / 16, n0 = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) f(m0 + 8 * i, n0 + 16 * j, sums[i][j]);
    }
  }
};

template <int kTile, class Sums>
class StagedProduct {
 public:
  static constexpr int kDepth = kStagedDepth;
  static constexpr int kStageFloats = 2 * std::max(StagedTile<kTile, true>::kFloats, StagedTile<kTile, false>::kFloats);
  static constexpr int kFloats = kStages * kStageFloats;

  // Steps [begin, end) of k. Returns the squares of what this thread wrote.
  template <bool kInsideA, bool kInsideB>
  __device__ static float run(const Product& p, int limit, int m0, int n0, int split, int begin, int end,
                              float* shared) {
    const bool sum_a = p.sums && n0 == 0;
    Sums sums;
    float sum_of_a = 0;
    add_steps<kInsideA, kInsideB>({p.a, p.lda, m0, limit}, {p.b, p.ldb, n0, p.n}, p.k, begin, end, sum_a, sums,
                                  sum_of_a, shared);
    return write_halves<kTile>(
        p, limit, m0, n0, split, sums, sum_a, kShares, [&](float* shares) { shares[threadIdx.x] = sum_of_a; }, shared);
  }

 private:
  static constexpr int kShares = kProductThreads / kTile;  // of k in the sums of a

  __device__ static int half() { return threadIdx.x / kHalfThreads; }

  template <bool kInsideA, bool kInsideB>
  __device__ static void add_steps(const Operand& a, const Operand& b, int k, int begin, int end, bool sum_a,
                                   Sums& sums, float& sum_of_a, float* shared) {
    using TileA = StagedTile<kTile, kInsideA>;
    using TileB = StagedTile<kTile, kInsideB>;
    const auto stage = [&](int i) { return shared + i % kStages * kStageFloats; };
    const auto load = [&](int i) {
      if (i < end) {
        float* tiles = stage(i - begin);
        TileA::load(tiles, a.from, a.ld, a.first, a.limit, i * kDepth, k, a.wide);
        TileB::load(tiles + kStageFloats / 2, b.from, b.ld, b.first, b.limit, i * kDepth, k, b.wide);
      }
      end_group();
    };
    // Code that runs a few times must be short: it comes from memory, too.
#pragma unroll 1
    for (int i = 0; i < kStages - 1; ++i) load(begin + i);
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
      wait_for_groups<kStages - 2>();
      __syncthreads();
      load(i + kStages - 1);
      const float *tile_a = stage(i - begin), *tile_b = tile_a + kStageFloats / 2;
      const int depth = min(kDepth, k - i * kDepth);
#pragma unroll 2
      for (int at = 8 * half(); at < depth; at += 16) sums.template add<TileA, TileB>(tile_a, tile_b, at);
      if (!sum_a) continue;
#pragma unroll 8
      for (int at = threadIdx.x / kTile; at < kDepth; at += kShares) {
        sum_of_a += TileA::at(tile_a, threadIdx.x % kTile, at);
      }
    }
    wait_for_groups<0>();
    __syncthreads();
  }
};

}  // namespace gipo::cuda
