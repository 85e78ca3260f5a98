#include <algorithm>
#include <cstdint>

#include "gipo/learner/cuda/group_product.cuh"
#include "gipo/learner/cuda/halves_product.cuh"
#include "gipo/learner/cuda/launch.cuh"
#include "gipo/learner/cuda/memory.h"
#include "gipo/learner/cuda/products.h"
#include "gipo/learner/cuda/staged_product.cuh"

namespace gipo::cuda {
namespace {

constexpr int kThreads = kProductThreads;
constexpr int kSmallTile = 32, kLargeTile = 64;
constexpr int kEnoughBlocks = 100;
constexpr int kLeastDepth = 128;  // of a part of a weight gradient

// By the instructions of four warps where the card has them.
template <int kTile>
struct Bf16Product {
  using OfWarps = HalvesProduct<kTile>;
  static constexpr bool kForGroups = kTile == GroupProduct::kTile;
  static constexpr int kDepth = OfWarps::kDepth;
  static constexpr int kFloats = std::max(OfWarps::kFloats, kForGroups ? GroupProduct::kFloats : 0);

  template <bool kInsideA, bool kInsideB>
  __device__ static float run(const Product& p, int limit, int m0, int n0, int split, int begin, int end,
                              float* shared) {
    if constexpr (kForGroups) {
      static_assert(kDepth == GroupProduct::kDepth);
      if (kWarpGroups) return GroupProduct::run<kInsideA, kInsideB>(p, limit, m0, n0, split, begin, end, shared);
    }
    return OfWarps::template run<kInsideA, kInsideB>(p, limit, m0, n0, split, begin, end, shared);
  }
};

template <class Tile, bool kInsideA, bool kInsideB>
__device__ float product_tile(const Product& p, int limit, int m0, int n0, int split, float* shared) {
  const int steps = (p.k + Tile::kDepth - 1) / Tile::kDepth, share = (steps + p.splits - 1) / p.splits;
  const int begin = min(split * share, steps), end = min(begin + share, steps);
  return Tile::template run<kInsideA, kInsideB>(p, limit, m0, n0, split, begin, end, shared);
}

template <int kTile, class Tile>
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
  if (p.form == Form::kForward) {
    product_tile<Tile, true, true>(p, limit, m0, n0, split, shared);
  } else if (p.form == Form::kInputGradient) {
    product_tile<Tile, true, false>(p, limit, m0, n0, split, shared);
  } else {
    double squares[1] = {product_tile<Tile, false, false>(p, limit, m0, n0, split, shared)};
    if (!p.squares) return;
    __syncthreads();
    block_sums(squares, reinterpret_cast<double*>(shared));
    if (threadIdx.x == 0) p.squares[block] = squares[0];
  }
}

template <class Tile>
constexpr std::size_t shared_bytes() {
  return Tile::kFloats * sizeof(float);
}

// f(tile) with a tile of that kind, of which only the type matters.
template <int kTile, class F>
void with_tile(ProductKind kind, F&& f) {
  switch (kind) {
    case ProductKind::kBf16x3:
      return f(std::type_identity<Bf16Product<kTile>>());
    case ProductKind::kTf32x3:
      return f(std::type_identity<StagedProduct<kTile, TensorSums<kTile, 2>>>());
    case ProductKind::kTf32:
      return f(std::type_identity<StagedProduct<kTile, TensorSums<kTile, 1>>>());
    case ProductKind::kFloat:
      return f(std::type_identity<StagedProduct<kTile, FloatSums<kTile>>>());
  }
}

template <int kTile>
void allow_shared(ProductKind kind) {
  with_tile<kTile>(kind, [](auto tile) {
    using Tile = typename decltype(tile)::type;
    check(cudaFuncSetAttribute(products_kernel<kTile, Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes<Tile>())),
          "shared memory");
  });
}

template <int kTile>
void run(ProductKind kind, const ProductLaunch& all, cudaStream_t stream) {
  with_tile<kTile>(kind, [&](auto tile) {
    using Tile = typename decltype(tile)::type;
    launch_as(LaunchKind::kEarly, products_kernel<kTile, Tile>, all.first_block[all.count], kThreads,
              shared_bytes<Tile>(), stream, "a product", all);
  });
}

int tiles_of(int size, int tile) { return (size + tile - 1) / tile; }
int blocks_of(const Product& p, int tile) { return tiles_of(p.m, tile) * tiles_of(p.n, tile) * p.splits; }

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

void prepare_products(ProductKind kind) {
  allow_shared<kSmallTile>(kind);
  allow_shared<kLargeTile>(kind);
}

int gradient_tiles(int m, int n) { return tiles_of(m, kLargeTile) * tiles_of(n, kLargeTile); }

int splits_of(int m, int n, int k) {
  return std::clamp(kEnoughBlocks / gradient_tiles(m, n), 1, std::clamp(tiles_of(k, kLeastDepth), 1, 16));
}

bool is_whole(int m, int n, int splits) {
  return splits == 1 && std::min(m, n) >= kLargeTile && gradient_tiles(m, n) >= kEnoughBlocks / 2;
}

ProductLaunch launch_of(const std::vector<Product>& products) {
  ProductLaunch launch{};
  int large = 0;
  bool whole = false;  // whose squares are counted by large tiles
  for (const Product& p : products) {
    large += blocks_of(p, kLargeTile);
    whole = whole || p.squares;
  }
  launch.tile = large >= kEnoughBlocks || whole ? kLargeTile : kSmallTile;
  for (const Product& p : products) {
    launch.products[launch.count] = p;
    launch.first_block[launch.count + 1] = launch.first_block[launch.count] + blocks_of(p, launch.tile);
    ++launch.count;
  }
  for (int i = launch.count; i < kMostProducts; ++i) launch.first_block[i + 1] = launch.first_block[launch.count];
  return launch;
}

void run_products(const ProductLaunch& launch, ProductKind kind, cudaStream_t stream) {
  if (launch.count == 0) return;
  if (launch.tile == kLargeTile) return run<kLargeTile>(kind, launch, stream);
  run<kSmallTile>(kind, launch, stream);
}

}  // namespace gipo::cuda
