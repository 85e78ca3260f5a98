// LayerNorm of several networks in one launch.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <vector>

#include "gipo/kernels/dense.h"

namespace gipo::cuda {

struct NormLayer {
  const float* x = nullptr;  // [rows, width] after the activation
  const float *gain = nullptr, *shift = nullptr;
  float *mean = nullptr, *inverse_std = nullptr;  // [rows]
  float* z = nullptr;                             // forward: [rows, ldz]
  float* delta = nullptr;                         // backward: [rows, width] by z; then by what the activation saw
  float* sums = nullptr;                          // backward: [blocks of rows, 2 width] of gain and shift
  const int* rows = nullptr;                      // on the card; where given, there are so many
  int most_rows = 0, width = 0, ldz = 0;
  Activation activation = Activation::kNone;
};

inline constexpr int kMostNorms = 3, kNormRows = 32;  // the second: rows of a block of sums
inline int norm_blocks(int rows) { return (rows + kNormRows - 1) / kNormRows; }

void run_norms(const std::vector<NormLayer>& layers, cudaStream_t stream);
void run_norms_backward(const std::vector<NormLayer>& layers, cudaStream_t stream);

}  // namespace gipo::cuda
