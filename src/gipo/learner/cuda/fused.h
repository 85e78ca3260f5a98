// Small networks: all layers of some rows in one block, so that an update is five kernels.
#pragma once

#include "gipo/kernels/dense.h"
#include "gipo/learner/cuda/loss.h"
#include "gipo/learner/team_net.h"

namespace gipo::cuda {

struct FusedNet {
  team::Net net;
  const float* parameters = nullptr;  // flat, as in files
  float* outputs = nullptr;           // [rows, outputs]
  float* parts = nullptr;             // [blocks of rows, net.parameters] of its gradient
};

struct FusedArrays {
  FusedNet policy, average, critic;
  bool has_average = false;
  const float* observation = nullptr;  // [rows, width]
  int width = 0, n = 0, most_rows = 0;
  const int* rows = nullptr;  // that the critic sees, on the card; null: n
  Activation activation = Activation::kTanh;
};

// Bytes of shared memory that these networks need.
std::size_t fused_bytes(const team::Net& policy, const team::Net& critic, int extras);
inline constexpr std::size_t kMostFusedBytes = 200 << 10;
inline constexpr int kMostFusedRows = 1024;  // beyond, large products are faster

// Once, before the others.
void prepare_fused();
// Outputs of the networks; where ratios are due, what evaluate_rows makes of them.
void fused_forward(const FusedArrays& arrays, const LossArrays& loss, const LossOptions& options, cudaStream_t stream);
// Derivatives by outputs, and the parts of the gradients; `policy`: of the policy too.
void fused_backward(const FusedArrays& arrays, const LossArrays& loss, const LossOptions& options, bool policy,
                    cudaStream_t stream);

}  // namespace gipo::cuda
