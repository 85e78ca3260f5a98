// A whole update of small networks as one launch, whose blocks wait for each other.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>

#include "gipo/learner/cuda/card_networks.h"
#include "gipo/learner/cuda/small_network.h"

namespace gipo::cuda {

// How the blocks share an update: some have rows of the policy, the others rows of the critic. All sum gradients.
struct SmallPlan {
  SmallNetwork policy, critic;
  int rows_per_block, policy_blocks, critic_blocks, learning_critic_blocks;
  int observation_size;
  bool short_rows;  // a thread has done with the distributions of a row before a warp would have
  // Places in shared memory, in floats: of the batch, of this block's rows and heads, and of its network.
  int steps, rows, heads, average_outputs, network;
  std::size_t shared;  // bytes
};
// None where the networks are too large, normalise or share layers: they take a launch for each layer.
std::optional<SmallPlan> small_plan(const LearnerSetup& setup);

struct SmallArrays {
  const float* observation;
  const float *policy, *average, *critic;  // parameters; average: null where nobody looks at it
  float* values;                           // [rows]
  float *policy_parts, *critic_parts;      // [blocks, parameters] gradients by the blocks' rows
  std::size_t policy_stride, critic_stride;
  double* sums;       // [blocks, 3] squares of the policy's and the critic's gradient, losses
  unsigned* arrived;  // blocks, at the places where they wait
};

std::size_t small_update_common_bytes();                          // of shared memory, before all else
void prepare_small_update(ProductKind kind, std::size_t shared);  // once, before the next
void run_small_update(const SmallPlan& plan, const SmallArrays& arrays, const LossArrays& loss,
                      const LossOptions& loss_options, const StepArrays& step, const StepOptions& step_options,
                      ProductKind kind, cudaStream_t stream);

}  // namespace gipo::cuda
