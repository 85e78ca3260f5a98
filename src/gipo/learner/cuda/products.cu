#include <algorithm>
#include <cstdint>

#include "gipo/learner/cuda/launch.cuh"
#include "gipo/learner/cuda/memory.h"
#include "gipo/learner/cuda/products.h"

namespace gipo::cuda {
namespace {

constexpr int kThreads = 128, kDepth = 32, kStages = 3;  // a stage: so much of k
constexpr int kSmallTile = 32, kLargeTile = 64;
constexpr int kEnoughBlocks = 100;

// Begins a copy to shared memory of so many bytes, the first `valid` of them from there, the rest zeros. The header of
// CUDA has a switch over the latter, which is most of a kernel's code.
template <int kBytes>
__device__ inline void begin_copy(float* to, const float* from, int valid) {
  const auto place = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(valid));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(place), "l"(from), "r"(valid));
  }
}
__device__ inline void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ inline void wait_for_groups() {  // but the last kLeft
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

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

__device__ inline std::uint32_t as_tf32(float x) {
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

// A factor for the tensor cores: its first ten bits, and with kParts = 2 the next ones.
template <int kParts>
struct Factor {
  std::uint32_t parts[kParts];
  __device__ void set(float x) {
    parts[0] = as_tf32(x);
    if constexpr (kParts == 2) parts[1] = as_tf32(x - __uint_as_float(parts[0]));
  }
};

template <int kParts>
__device__ inline void multiply_add(float* sums, const Factor<kParts> (&x)[4], int part_x, const Factor<kParts> (&y)[2],
                                    int part_y) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(x[0].parts[part_x]), "r"(x[1].parts[part_x]), "r"(x[2].parts[part_x]), "r"(x[3].parts[part_x]),
        "r"(y[0].parts[part_y]), "r"(y[1].parts[part_y]));
}

// The share of a tile of c that a warp has: on the tensor cores, blocks of 16 x 8.
template <int kTile, int kParts>
struct TensorSums {
  static constexpr int kHalf = kTile / 2, kRows = kHalf / 16, kColumns = kHalf / 8;
  float sums[kRows][kColumns][4] = {};

  template <class TileA, class TileB>
  __device__ void add(const float* a, const float* b) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, place = lane % 4;
    const int m0 = warp / 2 * kHalf + group, n0 = warp % 2 * kHalf + group;
#pragma unroll
    for (int k = 0; k < kDepth; k += 8) {
      Factor<kParts> x[kRows][4], y[kColumns][2];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        x[i][0].set(TileA::at(a, m0 + 16 * i, k + place));
        x[i][1].set(TileA::at(a, m0 + 16 * i + 8, k + place));
        x[i][2].set(TileA::at(a, m0 + 16 * i, k + place + 4));
        x[i][3].set(TileA::at(a, m0 + 16 * i + 8, k + place + 4));
      }
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        y[j][0].set(TileB::at(b, n0 + 8 * j, k + place));
        y[j][1].set(TileB::at(b, n0 + 8 * j, k + place + 4));
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          if constexpr (kParts == 2) {  // the small products first
            multiply_add(sums[i][j], x[i], 1, y[j], 0);
            multiply_add(sums[i][j], x[i], 0, y[j], 1);
          }
          multiply_add(sums[i][j], x[i], 0, y[j], 0);
        }
      }
    }
  }

  // f(row, column, value) for each, within the tile.
  template <class F>
  __device__ void each(F&& f) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int m0 = warp / 2 * kHalf + lane / 4, n0 = warp % 2 * kHalf + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
#pragma unroll
        for (int q = 0; q < 4; ++q) f(m0 + 16 * i + q / 2 * 8, n0 + 8 * j + q % 2, sums[i][j][q]);
      }
    }
  }
};

// The same in float, for each thread.
template <int kTile>
struct FloatSums {
  static constexpr int kRows = kTile / 8, kColumns = kTile / 16;
  float sums[kRows][kColumns] = {};

  template <class TileA, class TileB>
  __device__ void add(const float* a, const float* b) {
    const int m0 = threadIdx.x / 16, n0 = threadIdx.x % 16;
#pragma unroll 4
    for (int k = 0; k < kDepth; ++k) {
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
    const int m0 = threadIdx.x / 16, n0 = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) f(m0 + 8 * i, n0 + 16 * j, sums[i][j]);
    }
  }
};

__device__ inline float activated(float x, Activation activation) {
  if (activation == Activation::kTanh) return tanhf(x);
  if (activation == Activation::kRelu) return x < 0.0f ? 0.0f : x;  // NaN stays NaN
  return x;
}
__device__ inline float times_slope(float x, float output, Activation activation) {
  if (activation == Activation::kTanh) return x * (1.0f - output * output);
  if (activation == Activation::kRelu) return output > 0.0f ? x : 0.0f;
  return x;
}

template <int kTile>
constexpr int stage_floats() {
  return 2 * std::max(Tile<kTile, true>::kFloats, Tile<kTile, false>::kFloats);
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

  Sums sums;
  const bool sum_a = p.sums && n0 == 0 && threadIdx.x < kTile;
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
    sums.template add<TileA, TileB>(a, b);
    if (sum_a) {
#pragma unroll 8
      for (int k = 0; k < kDepth; ++k) sum_of_a += TileA::at(a, threadIdx.x, k);
    }
  }

  const std::size_t part = split * p.split_stride;
  if (sum_a && m0 + static_cast<int>(threadIdx.x) < limit) p.sums[part + m0 + threadIdx.x] = sum_of_a;

  // Through shared memory, so that neighbours write neighbours, and activations stand in the code once.
  constexpr int kRowStride = kTile + 4;
  __syncthreads();
  sums.each([&](int row, int column, float value) { shared[row * kRowStride + column] = value; });
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < kTile * kTile; i += kThreads) {
    const int m = m0 + i / kTile, n = n0 + i % kTile;
    if (m >= limit || n >= p.n) continue;
    float value = shared[i / kTile * kRowStride + i % kTile];
    if (p.bias) value += p.bias[n];
    value = p.below ? times_slope(value, p.below[static_cast<std::size_t>(m) * p.ld_below + n], p.activation)
                    : activated(value, p.activation);
    p.c[part + static_cast<std::size_t>(m) * p.ldc + n] = value;
  }
}

template <int kTile, class Sums>
__global__ void __launch_bounds__(kThreads) products_kernel(const __grid_constant__ ProductLaunch launch) {
  extern __shared__ __align__(16) float shared[];
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
  launch(products_kernel<kTile, Sums>, all.first_block[all.count], kThreads, shared_bytes<kTile>(), stream, "a product",
         all);
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
