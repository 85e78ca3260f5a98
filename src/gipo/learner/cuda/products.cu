#include <algorithm>
#include <cstdint>

#include "gipo/learner/cuda/launch.cuh"
#include "gipo/learner/cuda/memory.h"
#include "gipo/learner/cuda/products.h"
#include "gipo/learner/cuda/tensor.cuh"

namespace gipo::cuda {
namespace {

constexpr int kThreads = 256, kHalfThreads = kThreads / 2, kDepth = 64, kStages = 3;  // a stage: so much of k
constexpr int kSmallTile = 32, kLargeTile = 64;
constexpr int kEnoughBlocks = 100;

// A tile of an operand in shared memory, kTile rows or columns of c by kDepth of k, as it lies in memory: with k inside
// or outside. The padding spreads what a warp reads over the banks.
template <int kTile, bool kInside>
struct Tile {
  static constexpr int kInner = kInside ? kDepth : kTile, kOuter = kInside ? kTile : kDepth;
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
    constexpr int kPerRow = kInner / kFloatsAtOnce, kStep = kThreads / kPerRow;
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

__device__ inline bool is_wide(const float* from, int ld) {
  return ld % 4 == 0 && reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
}

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

template <int kTile>
constexpr int stage_floats() {
  return 2 * std::max(Tile<kTile, true>::kFloats, Tile<kTile, false>::kFloats);
}

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

template <int kTile, class Sums, class TileA, class TileB>
__device__ void product_tile(const Product& p, int limit, int m0, int n0, int split, float* shared) {
  const int steps = (p.k + kDepth - 1) / kDepth, share = (steps + p.splits - 1) / p.splits;
  const int begin = min(split * share, steps), end = min(begin + share, steps);
  const bool wide_a = is_wide(p.a, p.lda), wide_b = is_wide(p.b, p.ldb);
  const auto stage = [&](int i) { return shared + i % kStages * stage_floats<kTile>(); };
  const auto load = [&](int i) {
    if (i < end) {
      float* tiles = stage(i - begin);
      TileA::load(tiles, p.a, p.lda, m0, limit, i * kDepth, p.k, wide_a);
      TileB::load(tiles + stage_floats<kTile>() / 2, p.b, p.ldb, n0, p.n, i * kDepth, p.k, wide_b);
    }
    end_group();
  };

  // The four columns of c, and some rows, that this thread writes at the end.
  constexpr int kGroups = kTile / 4, kRowsAtOnce = kThreads / kGroups, kWritten = kTile / kRowsAtOnce;
  const int column = threadIdx.x % kGroups * 4, n = n0 + column, left = min(4, p.n - n);
  float bias[4] = {};
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    if (p.bias && q < left) bias[q] = p.bias[n + q];
  }

  Sums sums;
  const int half = threadIdx.x / kHalfThreads;
  const bool sum_a = p.sums && n0 == 0;
  constexpr int kShares = kThreads / kTile;  // of k in the sums of a
  float sum_of_a = 0;
  // Code that runs a few times must be short: it comes from memory, too.
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) load(begin + i);
#pragma unroll 1
  for (int i = begin; i < end; ++i) {
    wait_for_groups<kStages - 2>();
    __syncthreads();
    load(i + kStages - 1);
    const float *a = stage(i - begin), *b = a + stage_floats<kTile>() / 2;
    const int depth = min(kDepth, p.k - i * kDepth);
#pragma unroll 2
    for (int k = 8 * half; k < depth; k += 16) sums.template add<TileA, TileB>(a, b, k);
    if (sum_a) {
#pragma unroll 8
      for (int k = threadIdx.x / kTile; k < kDepth; k += kShares) sum_of_a += TileA::at(a, threadIdx.x % kTile, k);
    }
  }

  // The halves together, through shared memory, so that neighbours write neighbours.
  constexpr int kRowStride = kTile + 4;
  float* const shares = shared + kTile * kRowStride;
  wait_for_groups<0>();
  __syncthreads();
  if (half == 1) sums.each([&](int row, int column, float value) { shared[row * kRowStride + column] = value; });
  if (sum_a) shares[threadIdx.x] = sum_of_a;
  __syncthreads();
  if (half == 0) sums.each([&](int row, int column, float value) { shared[row * kRowStride + column] += value; });
  const std::size_t part = split * p.split_stride;
  if (sum_a && threadIdx.x < kTile && m0 + static_cast<int>(threadIdx.x) < limit) {
    float sum = 0;
    for (int k = 0; k < kShares; ++k) sum += shares[k * kTile + threadIdx.x];
    p.sums[part + m0 + threadIdx.x] = sum;
  }
  __syncthreads();
  float* const c = p.c + part;
  const bool wide = left == 4 && is_wide(c + n, p.ldc), wide_below = left == 4 && is_wide(p.below + n, p.ld_below);
  for (int i = 0; i < kWritten; ++i) {
    const int row = static_cast<int>(threadIdx.x) / kGroups + i * kRowsAtOnce, m = m0 + row;
    if (m >= limit || left <= 0) break;
    float value[4], below[4] = {};
    if (p.below) read_four(below, p.below + static_cast<std::size_t>(m) * p.ld_below + n, left, wide_below);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float sum = shared[row * kRowStride + column + q] + bias[q];
      value[q] = p.below ? times_slope(sum, below[q], p.activation) : activated(sum, p.activation);
    }
    float* const to = c + static_cast<std::size_t>(m) * p.ldc + n;
    if (wide) {
      *reinterpret_cast<float4*>(to) = {value[0], value[1], value[2], value[3]};
    } else {
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        if (q < left) to[q] = value[q];
      }
    }
  }
}

template <int kTile, class Sums>
__global__ void __launch_bounds__(kThreads, 2) products_kernel(const __grid_constant__ ProductLaunch launch) {
  auto* const shared = shared_memory<float>();
  let_next_launch_begin();
  wait_for_launch_before();
  int block;
  const auto p = entry_of_block<Product, kMostProducts>(launch.products, launch.first_block, block);
  const int limit = p.rows ? min(*p.rows, p.m) : p.m;
  const int columns = (p.n + kTile - 1) / kTile, rows = (p.m + kTile - 1) / kTile;
  const int m0 = block / columns % rows * kTile, n0 = block % columns * kTile, split = block / (columns * rows);
  if (m0 >= limit) return;
  using Inside = Tile<kTile, true>;
  using Outside = Tile<kTile, false>;
  if (p.form == Form::kForward) return product_tile<kTile, Sums, Inside, Inside>(p, limit, m0, n0, split, shared);
  if (p.form == Form::kInputGradient) {
    return product_tile<kTile, Sums, Inside, Outside>(p, limit, m0, n0, split, shared);
  }
  product_tile<kTile, Sums, Outside, Outside>(p, limit, m0, n0, split, shared);
}

template <int kTile>
constexpr std::size_t shared_bytes() {
  return kStages * stage_floats<kTile>() * sizeof(float);
}

int tiles_of(int size, int tile) { return (size + tile - 1) / tile; }
int blocks_of(const Product& p, int tile) { return tiles_of(p.m, tile) * tiles_of(p.n, tile) * p.splits; }

template <int kTile, class Sums>
void run(const ProductLaunch& all, cudaStream_t stream) {
  launch_as(LaunchKind::kEarly, products_kernel<kTile, Sums>, all.first_block[all.count], kThreads,
            shared_bytes<kTile>(), stream, "a product", all);
}

template <int kTile, class Sums>
void allow_shared() {
  check(cudaFuncSetAttribute(products_kernel<kTile, Sums>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes<kTile>())),
        "shared memory");
}

__global__ void __launch_bounds__(kThreads)
    columns_kernel(const float* from, int from_stride, float* to, int to_stride, int width, int rows) {
  const int i = blockIdx.x * kThreads + threadIdx.x, row = i / width, column = i % width;
  if (row < rows) {
    to[static_cast<std::size_t>(row) * to_stride + column] = from[static_cast<std::size_t>(row) * from_stride + column];
  }
}

}  // namespace

void copy_columns(const float* from, int from_stride, float* to, int to_stride, int width, int rows,
                  cudaStream_t stream) {
  launch(columns_kernel, (width * rows + kThreads - 1) / kThreads, kThreads, 0, stream, "a copy", from, from_stride, to,
         to_stride, width, rows);
}

void prepare_products() {
  allow_shared<kSmallTile, TensorSums<kSmallTile, 1>>();
  allow_shared<kLargeTile, TensorSums<kLargeTile, 1>>();
  allow_shared<kSmallTile, TensorSums<kSmallTile, 2>>();
  allow_shared<kLargeTile, TensorSums<kLargeTile, 2>>();
  allow_shared<kSmallTile, FloatSums<kSmallTile>>();
  allow_shared<kLargeTile, FloatSums<kLargeTile>>();
}

int splits_of(int m, int n, int k) {
  const int tiles = tiles_of(m, kLargeTile) * tiles_of(n, kLargeTile);
  return std::clamp(kEnoughBlocks / tiles, 1, std::clamp(tiles_of(k, 2 * kDepth), 1, 16));
}

ProductLaunch launch_of(const std::vector<Product>& products) {
  ProductLaunch launch{};
  int large = 0;
  for (const Product& p : products) large += blocks_of(p, kLargeTile);
  launch.tile = large >= kEnoughBlocks ? kLargeTile : kSmallTile;
  for (const Product& p : products) {
    launch.products[launch.count] = p;
    launch.first_block[launch.count + 1] = launch.first_block[launch.count] + blocks_of(p, launch.tile);
    ++launch.count;
  }
  for (int i = launch.count; i < kMostProducts; ++i) launch.first_block[i + 1] = launch.first_block[launch.count];
  return launch;
}

template <int kTile>
void run_in(ProductKind kind, const ProductLaunch& launch, cudaStream_t stream) {
  switch (kind) {
    case ProductKind::kTf32x3:
      return run<kTile, TensorSums<kTile, 2>>(launch, stream);
    case ProductKind::kTf32:
      return run<kTile, TensorSums<kTile, 1>>(launch, stream);
    case ProductKind::kFloat:
      return run<kTile, FloatSums<kTile>>(launch, stream);
  }
}

void run_products(const ProductLaunch& launch, ProductKind kind, cudaStream_t stream) {
  if (launch.count == 0) return;
  if (launch.tile == kLargeTile) return run_in<kLargeTile>(kind, launch, stream);
  run_in<kSmallTile>(kind, launch, stream);
}

}  // namespace gipo::cuda
