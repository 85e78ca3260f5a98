// From the parts of gradients to the next weights.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "gipo/kernels/adamw_terms.h"
#include "gipo/learner/cuda/loss.h"

namespace gipo::cuda {

// Squares of a gradient, which are summed up.
struct SquaresOfGradient {
  const double* squares = nullptr;
  int count = 0;
};
// Neighbouring parameters whose gradients are the sums of as many parts, or are there already: then their squares are.
struct GradientPart {
  const float* parts = nullptr;  // [splits, stride]
  std::size_t stride = 0;
  int first = 0, count = 0;  // in the flat buffer
  int splits = 1;
  bool critic = false;
  SquaresOfGradient whole{};
};
// What one block sums: `count` parameters of a part.
struct GradientBlock {
  GradientPart part;
  int begin = 0, count = 0;  // within the part
};
inline constexpr int kSumsPerBlock = 1024, kWideSumsPerBlock = 8;
inline constexpr int kManySplits = 32;  // from so many on, a warp sums one parameter
inline constexpr int kMostWhole = 8;

// What the host reads of an update.
struct StepReport {
  Figures figures;
  StepState state;
  int was_skipped;
};

struct StepOptions {
  int policy_size, network_size, size;  // of the policy, of it without log standard deviations, of all
  bool policy_due, keeps_average;
  double beta1, beta2, epsilon, weight_decay, max_norm, average_decay;
  double loss_scale;      // of the sum of losses
  std::int64_t most_bad;  // after so many in a row that were not finite nothing changes any more
};

// Constants that one block works out for all.
struct StepConstants {
  AdamWStep<float> policy, critic;
  float average_step;
  int skip;
};

struct StepArrays {
  const BatchHeader* header;
  const GradientBlock* blocks;
  int block_count;
  double* squares;                         // [blocks]
  SquaresOfGradient whole[2][kMostWhole];  // of the policy and of the critic
  unsigned* finished;                      // blocks that are; zero between updates
  float *gradient, *parameters, *first, *second, *average;
  const Figures* figures;
  const double* losses;  // as the loss made them
  int loss_count;
  const double* powers;
  StepState* state;
  StepConstants* constants;
  StepReport* report;  // of the host
};

void sum_gradients(const StepArrays& arrays, const StepOptions& options, cudaStream_t stream);
void step_weights(const StepArrays& arrays, const StepOptions& options, cudaStream_t stream);

}  // namespace gipo::cuda
