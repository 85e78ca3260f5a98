// Outputs of an MLP for observations that are on the card, for whoever acts there.
#pragma once

#include <cuda_runtime_api.h>

#include "gipo/learner/cuda/small_network.h"
#include "gipo/learner/product_kind.h"

namespace gipo::cuda {

struct Inference {
  SmallNetwork network;
  const float* parameters;    // not written by the launch before, which they do not wait for
  const float* observations;  // [rows, input]
  float* outputs;             // [rows, output]
  int rows;
};

// Rows that a block takes at once, so that the card is busy and weights are not copied more often than needed.
int inference_rows_per_block(int rows);
void prepare_inference(const SmallNetwork& network, ProductKind kind);  // once
void run_inference(const Inference& inference, ProductKind kind, cudaStream_t stream);

}  // namespace gipo::cuda
