// The products of layers on a card, several in one launch.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <vector>

#include "gipo/kernels/dense.h"
#include "gipo/learner/product_kind.h"

namespace gipo::cuda {

enum class Form {
  kForward,         // c [m, n] = activation(a [m, k] b [n, k]^T + bias)
  kInputGradient,   // c [m, n] = a [m, k] b [k, n], times the slope of the activation whose output is `below`
  kWeightGradient,  // c [m, n] = a [k, m]^T b [k, n], and the sums of a over k
};

struct Product {
  Form form = Form::kForward;
  Activation activation = Activation::kNone;
  const float *a = nullptr, *b = nullptr;
  float* c = nullptr;
  const float* bias = nullptr;   // [n]
  const float* below = nullptr;  // [m, n]
  float* sums = nullptr;         // [m]
  const int* rows = nullptr;     // on the card; where given, m is this many, and the member m the most
  int m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0, ld_below = 0;
  // A weight gradient in parts: part s has its share of k, and c and sums so many floats further on.
  int splits = 1;
  std::size_t split_stride = 0;
  double* squares = nullptr;  // [gradient_tiles] of a weight gradient in one part, and of its sums
};

inline constexpr int kMostProducts = 6;
struct ProductLaunch {
  std::array<Product, kMostProducts> products;
  std::array<int, kMostProducts + 1> first_block;
  int count = 0, tile = 0;
};

// Of these, at most kMostProducts. The parts of weight gradients must have been chosen.
ProductLaunch launch_of(const std::vector<Product>& products);
// The parts of a weight gradient [m, n] over k rows that keep the card busy.
int splits_of(int m, int n, int k);
// Whether it is made in one part, so that nobody has to sum it up; its squares are then those of so many tiles.
bool is_whole(int m, int n, int splits);
int gradient_tiles(int m, int n);

void run_products(const ProductLaunch& launch, ProductKind kind, cudaStream_t stream);
// `width` floats of each of the rows.
void copy_columns(const float* from, int from_stride, float* to, int to_stride, int width, int rows,
                  cudaStream_t stream);
void prepare_products(ProductKind kind);  // once, before all others

}  // namespace gipo::cuda
