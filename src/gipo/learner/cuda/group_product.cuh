// A tile of a product as HalvesProduct makes it, by the instructions of four warps together: they read the factors from
// shared memory themselves, and add while the next are split and stored.
#pragma once

#include <algorithm>

#include "gipo/learner/cuda/halves_product.cuh"

namespace gipo::cuda {

// The sums of a tile that a thread has. Each half of the block has the same places, and every other sixteen of k.
struct GroupSums {
  float sums[32] = {};

  // f(row, column, two neighbours) for each two, within the tile.
  template <class F>
  __device__ void each(F&& f) const {
    const int lane = threadIdx.x % 32, first = threadIdx.x % kHalfThreads / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      f(first + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2, float2{sums[i], sums[i + 1]});
    }
  }
};

class GroupProduct {
 public:
  static constexpr int kTile = 64, kDepth = 8 * kProductThreads / kTile;
  static_assert(kDepth == 32, "a step of sixteen for each half of the block");
  using TileOfA = HalvesTile<kTile, kDepth, false>;  // of a weight gradient
  static constexpr int kStages = 3, kWordsOfFactor = kTile * kDepth, kStageWords = 2 * kWordsOfFactor;
  static constexpr int kShares = TileOfA::kRowsAtOnce;  // of k in the sums of a
  static constexpr int kFloats = std::max(kStages * kStageWords, kTile*(tile_stride(kTile) + kShares));

  // Steps [begin, end) of k. Returns the squares of what this thread wrote.
  template <bool kInsideA, bool kInsideB>
  __device__ static float run(const Product& p, int limit, int m0, int n0, int split, int begin, int end,
                              float* shared) {
    const bool sum_a = p.sums && n0 == 0;
    GroupSums c;
    float sums_of_a[4] = {};
    add_steps<kInsideA, kInsideB>({p.a, p.lda, m0, limit}, {p.b, p.ldb, n0, p.n}, p.k, begin, end, sum_a, sums_of_a, c,
                                  reinterpret_cast<std::uint32_t*>(shared));
    return write_halves<kTile>(
        p, limit, m0, n0, split, c, sum_a, kShares, [&](float* shares) { TileOfA::put_sums(sums_of_a, shares); },
        shared);
  }

 private:
  template <bool kInside>
  __device__ static std::uint64_t factor(const std::uint32_t* plane) {
    constexpr int kRowBytes = 2 * HalvesTile<kTile, kDepth, kInside>::kInner;
    const int k = 16 * (threadIdx.x / kHalfThreads);
    return factor_of_group<kRowBytes>(plane + (kInside ? 0 : k * kRowBytes / 4), kInside ? 2 * k : 0);
  }

  // While one step is added two more are on their way to registers, and of a third the products may still be under way.
  template <bool kInsideA, bool kInsideB>
  __device__ static void add_steps(const Operand& a, const Operand& b, int k, int begin, int end, bool sum_a,
                                   float (&sums_of_a)[4], GroupSums& c, std::uint32_t* stages) {
    using TileA = HalvesTile<kTile, kDepth, kInsideA>;
    using TileB = HalvesTile<kTile, kDepth, kInsideB>;
    typename TileA::Source source_a(a, begin * kDepth, k);
    typename TileB::Source source_b(b, begin * kDepth, k);
    float of_a[2][8] = {}, of_b[2][8] = {};
    int loaded = begin;
    const auto load = [&](float(&to_a)[8], float(&to_b)[8]) {
      if (loaded++ >= end) return;
      source_a.next(to_a);
      source_b.next(to_b);
    };
    std::uint32_t* stage = stages;
    const auto step = [&](float(&next_a)[8], float(&next_b)[8]) {
      TileA::store(stage, next_a);
      TileB::store(stage + kWordsOfFactor, next_b);
      if (sum_a) add_to_sums(sums_of_a, next_a);
      show_to_groups();
      wait_for_products<kStages - 2>(c.sums);
      __syncthreads();  // the stage is written, and nobody reads the next one any more
      load(next_a, next_b);
      const std::uint64_t a_high = factor<kInsideA>(stage), a_low = factor<kInsideA>(stage + TileA::kWordsOfPlane);
      const std::uint32_t* const stage_b = stage + kWordsOfFactor;
      const std::uint64_t b_high = factor<kInsideB>(stage_b), b_low = factor<kInsideB>(stage_b + TileB::kWordsOfPlane);
      begin_products();
      begin_product<!kInsideA, !kInsideB>(c.sums, a_low, b_high);
      begin_product<!kInsideA, !kInsideB>(c.sums, a_high, b_low);
      begin_product<!kInsideA, !kInsideB>(c.sums, a_high, b_high);
      end_products();
      stage = stage == stages + (kStages - 1) * kStageWords ? stages : stage + kStageWords;
    };
    load(of_a[0], of_b[0]);
    load(of_a[1], of_b[1]);
#pragma unroll 1
    for (int i = begin; i < end; i += 2) {
      step(of_a[0], of_b[0]);
      if (i + 1 < end) step(of_a[1], of_b[1]);
    }
    wait_for_products<0>(c.sums);
    __syncthreads();
  }
};

}  // namespace gipo::cuda
