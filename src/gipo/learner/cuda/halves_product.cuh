// A tile of a product on the tensor cores, each factor as two bf16: high parts by high parts, and each by the other's low
// part.
#pragma once

#include <algorithm>

#include "gipo/kernels/reduce.cuh"
#include "gipo/learner/cuda/product_operand.cuh"
#include "gipo/learner/cuda/products.h"
#include "gipo/learner/cuda/tensor.cuh"

namespace gipo::cuda {

// A factor of a tile, kTile rows or columns of c by kDepth of k, as two planes of bf16 in shared memory, with k inside its
// rows or outside, as it lies in memory. Pieces of eight change places within a row, so that the eight rows that a warp
// reads at once lie in different banks.
template <int kTile, int kDepth, bool kInside>
struct HalvesTile {
  static constexpr int kInner = kInside ? kDepth : kTile, kPieces = kInner / 8, kQuads = kInner / 4;
  static constexpr int kWordsOfPlane = kTile * kDepth / 2;
  static constexpr int kRowsAtOnce = kProductThreads / kQuads;  // by a quad for each thread; there are two for each
  static_assert(kTile * kDepth == 8 * kProductThreads && (kPieces == 4 || kPieces == 8));

  __device__ static int row() { return threadIdx.x / kQuads; }
  __device__ static int quad() { return threadIdx.x % kQuads; }
  // Place of a piece in a plane, in words.
  __device__ static int word(int row, int piece) {
    return 4 * (row * kPieces + (piece ^ (kPieces == 8 ? row & 7 : row >> 1 & 3)));
  }

  // The two quads of this thread in each step.
  struct Source {
    const float* from[2];
    std::size_t stride;      // from step to step
    int left[2], k_left[2];  // numbers from here on in the row, and steps of k
    bool wide;

    __device__ Source(const Operand& x, int k0, int k_limit) {
      const int inner = (kInside ? k0 : x.first) + 4 * quad();
      stride = kInside ? kDepth : static_cast<std::size_t>(kDepth) * x.ld;
      wide = x.wide;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int outer = (kInside ? x.first : k0) + row() + i * kRowsAtOnce;
        from[i] = x.from + static_cast<std::size_t>(outer) * x.ld + inner;
        left[i] = kInside && outer >= x.limit ? 0 : (kInside ? k_limit : x.limit) - inner;
        k_left[i] = kInside ? 1 : k_limit - outer;
      }
    }
    // Zeros beyond.
    __device__ void next(float (&to)[8]) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool there = k_left[i] > 0;
        if (__builtin_expect(wide && left[i] >= 4 && there, 1)) {
          const float4 v = __ldcg(reinterpret_cast<const float4*>(from[i]));
          to[4 * i] = v.x, to[4 * i + 1] = v.y, to[4 * i + 2] = v.z, to[4 * i + 3] = v.w;
        } else {
#pragma unroll
          for (int q = 0; q < 4; ++q) to[4 * i + q] = there && q < left[i] ? __ldcg(from[i] + q) : 0.0f;
        }
        from[i] += stride;
        if (kInside) left[i] -= kDepth;
        if (!kInside) k_left[i] -= kDepth;
      }
    }
  };

  __device__ static void store(std::uint32_t* planes, const float (&x)[8]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint2 high, low;
      split_pair(x[4 * i], x[4 * i + 1], high.x, low.x);
      split_pair(x[4 * i + 2], x[4 * i + 3], high.y, low.y);
      std::uint32_t* const at = planes + word(row() + i * kRowsAtOnce, quad() / 2) + quad() % 2 * 2;
      *reinterpret_cast<uint2*>(at) = high;
      *reinterpret_cast<uint2*>(at + kWordsOfPlane) = low;
    }
  }

  // This thread's share of the sums over k, where it is outside.
  __device__ static void put_sums(const float (&sums)[4], float* shares) {
    static_assert(!kInside);
#pragma unroll
    for (int q = 0; q < 4; ++q) shares[row() * kTile + 4 * quad() + q] = sums[q];
  }

  // A fragment of 16 places by 16 of k. kFirst: as the first factor has it; otherwise two of the second, whose halves are
  // neighbours.
  template <bool kFirst>
  __device__ static void fragment(std::uint32_t (&to)[4], const std::uint32_t* plane, int place, int k) {
    const int lane = threadIdx.x % 32;
    if constexpr (kInside == kFirst) {
      const int outer = (kInside ? place : k) + lane % 16, inner = (kInside ? k : place) / 8 + lane / 16;
      load_matrices<!kInside>(to, plane + word(outer, inner));
    } else {
      const int outer = (kInside ? place : k) + lane % 8 + lane / 16 * 8,
                inner = (kInside ? k : place) / 8 + lane / 8 % 2;
      load_matrices<!kInside>(to, plane + word(outer, inner));
    }
  }
};

// Both quads of a step have the same places in a row.
__device__ inline void add_to_sums(float (&sums)[4], const float (&quads)[8]) {
#pragma unroll
  for (int q = 0; q < 8; ++q) sums[q % 4] += quads[q];
}

// Each of the eight warps has a part of the tile, in blocks of 16 x 8.
template <int kTile>
class HalvesProduct {
 public:
  static constexpr int kDepth = 8 * kProductThreads / kTile;
  static constexpr int kWordsOfFactor = kTile * kDepth, kStageWords = 2 * kWordsOfFactor;
  using TileOfA = HalvesTile<kTile, kDepth, false>;     // of a weight gradient
  static constexpr int kShares = TileOfA::kRowsAtOnce;  // of k in the sums of a
  static constexpr int kFloats = std::max(2 * kStageWords, kTile*(tile_stride(kTile) + kShares));

  // Steps [begin, end) of k. Returns the squares of what this thread wrote.
  template <bool kInsideA, bool kInsideB>
  __device__ static float run(const Product& p, int limit, int m0, int n0, int split, int begin, int end,
                              float* shared) {
    const bool sum_a = p.sums && n0 == 0;
    HalvesProduct c;
    float sums_of_a[4] = {};
    c.template add_steps<kInsideA, kInsideB>({p.a, p.lda, m0, limit}, {p.b, p.ldb, n0, p.n}, p.k, begin, end, sum_a,
                                             sums_of_a, reinterpret_cast<std::uint32_t*>(shared));
    __syncthreads();
    float* const shares = shared + kTile * tile_stride(kTile);
    c.each_pair_of_sums([&](int row, int column, float x, float y) {
      *reinterpret_cast<float2*>(shared + row * tile_stride(kTile) + column) = {x, y};
    });
    if (sum_a) TileOfA::put_sums(sums_of_a, shares);
    __syncthreads();
    const float sum = sum_a ? write_sums_of_a<kTile>(p, limit, m0, split, shares, kShares) : 0.0f;
    return sum * sum + write_tile<kTile>(p, limit, m0, n0, split, shared);
  }

 private:
  static constexpr int kColumnWarps = 4, kRows = kTile / 32, kColumns = kTile / 32;
  static constexpr int kPairs = (kColumns + 1) / 2;  // of neighbouring blocks of columns

  __device__ static int first_row() { return threadIdx.x / 32 / kColumnWarps * 16 * kRows; }
  __device__ static int first_column() { return threadIdx.x / 32 % kColumnWarps * 8 * kColumns; }

  // Steps [begin, end) of k, of which two are on their way while one is added.
  template <bool kInsideA, bool kInsideB>
  __device__ void add_steps(const Operand& a, const Operand& b, int k, int begin, int end, bool sum_a,
                            float (&sums_of_a)[4], std::uint32_t* stages) {
    using TileA = HalvesTile<kTile, kDepth, kInsideA>;
    using TileB = HalvesTile<kTile, kDepth, kInsideB>;
    typename TileA::Source source_a(a, begin * kDepth, k);
    typename TileB::Source source_b(b, begin * kDepth, k);
    float of_a[2][8] = {}, of_b[2][8] = {};
    int loaded = begin;
    const bool works = a.first + first_row() < a.limit && b.first + first_column() < b.limit;
    const auto load = [&](float(&to_a)[8], float(&to_b)[8]) {
      if (loaded++ >= end) return;
      source_a.next(to_a);
      source_b.next(to_b);
    };
    const auto step = [&](float(&next_a)[8], float(&next_b)[8], int stage) {
      TileA::store(stages + stage, next_a);
      TileB::store(stages + stage + kWordsOfFactor, next_b);
      if (sum_a) add_to_sums(sums_of_a, next_a);
      __syncthreads();  // nobody reads the other stage any more
      load(next_a, next_b);
      if (!works) return;
#pragma unroll
      for (int at = 0; at < kDepth; at += 16) {
        add<TileA, TileB>(stages + stage, stages + stage + kWordsOfFactor, at);
      }
    };
    load(of_a[0], of_b[0]);
    load(of_a[1], of_b[1]);
#pragma unroll 1
    for (int i = begin; i < end; i += 2) {
      step(of_a[0], of_b[0], 0);
      if (i + 1 < end) step(of_a[1], of_b[1], kStageWords);
    }
  }

  template <class TileA, class TileB>
  __device__ void add(const std::uint32_t* a, const std::uint32_t* b, int k) {
    std::uint32_t x[kRows][4], y[kPairs][4];
    const auto read_x = [&](int part) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        TileA::template fragment<true>(x[i], a + part * TileA::kWordsOfPlane, first_row() + 16 * i, k);
      }
    };
    const auto read_y = [&](int part) {
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        TileB::template fragment<false>(y[j], b + part * TileB::kWordsOfPlane, first_column() / 16 * 16 + 16 * j, k);
      }
    };
    const bool second = kColumns == 1 && first_column() % 16 != 0;  // of a pair of which the other warp has the first
    const auto each_pair = [&] {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const auto& of_y = y[j / 2];
          multiply_add_halves(sums_[i][j], x[i], second ? of_y[2] : of_y[j % 2 * 2],
                              second ? of_y[3] : of_y[j % 2 * 2 + 1]);
        }
      }
    };
    read_x(1);
    read_y(0);
    each_pair();
    read_x(0);
    each_pair();
    read_y(1);
    each_pair();
  }

  // f(row, column, two sums) of each pair of neighbours that this thread has, within the tile.
  template <class F>
  __device__ void each_pair_of_sums(F&& f) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {  // rows lane / 4, and 8, 16 and 24 more
        const float* const sums = sums_[i / 2][j] + i % 2 * 2;
        f(first_row() + lane / 4 + 8 * i, first_column() + 8 * j + lane % 4 * 2, sums[0], sums[1]);
      }
    }
  }

  float sums_[kRows][kColumns][4] = {};
};

}  // namespace gipo::cuda
