// From the outputs of the networks to the derivatives by them: log ratios, advantages, multipliers, losses.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gipo/objective/advantage_terms.h"
#include "gipo/objective/surrogate_choice.h"

namespace gipo::cuda {

// A dimension of an action, and where its outputs, its mask and its log standard deviation stand.
struct Head {
  int choices, output, mask, extra;  // choices: 0, a gaussian
};

// What the host says of a batch besides its arrays; the first bytes of what is copied.
struct BatchHeader {
  int rows = 0, stretches = 0;
  double policy_rate = 0, value_rate = 0, entropy_coef = 0;
};
struct CardStretch {
  int begin, length, terminated;
};

// Kept on the card from update to update.
struct StepState {
  std::int64_t policy_steps = 0, critic_steps = 0, skipped = 0, skipped_in_a_row = 0;
};

// Of one update, in double as UpdateStats has them.
struct Figures {
  double policy_loss, value_loss, entropy, proximal_kl, explained_variance;
  double importance_mean, importance_cut_frac;
  double policy_norm, value_norm;
  double advantage_mean, advantage_std, advantage_abs_max, value_mean;
};

enum class Advantages { kVtrace, kGae, kStored };

// N: batch size, D: action dimensions, M: ratios, N or N * D. Arrays of the card.
struct LossArrays {
  const BatchHeader* header;
  const Head* heads;               // [D]
  const float *outputs, *log_std;  // [N, outputs], [extras]
  const float *average_outputs, *average_log_std;
  const float* values;                                  // [rows]
  const float *action, *behaviour, *reward;             // [N, D], [N, D], [N]
  const float *stored_advantage, *stored_target, *gap;  // [N]
  const std::uint8_t* mask;                             // [N, mask_size] or null
  const CardStretch* stretches;
  // Made here.
  float *norm, *head_entropy, *average_norm;  // [N, D]
  float *entropy, *proximal, *joint;          // [N]
  float *ratio, *trust, *importance;          // [M]
  float *advantage, *target;                  // [N]
  float *ratio_advantage, *multiplier;        // [M]
  float* d_log_prob;                          // [N, D]
  float* d_value;                             // [N]
  float* d_outputs;                           // [N, outputs]
  float* d_log_std;                           // [blocks of rows, extras]
  double* pieces;                             // [kPieceSums, N] sums over stretches, or over some samples
  double* losses;                             // [blocks of rows] sums of the policy's
  float* bound;                               // of a surrogate that looks at the whole batch
  Figures* figures;                           // but for the policy's loss and the norms
  const StepState* state;
  double* powers;  // [5] of beta1 and beta2 for the policy and for the critic, and of what the average keeps
};

struct LossOptions {
  int n, dims, outputs, extras, mask_size;
  int ratios;          // of each action
  int rows_per_block;  // rows_per_block() of this distribution
  bool centred, proximal, normalise;
  bool ratios_due, gradient_due;  // whether the policy's ratios are computed, and its gradient
  Advantages advantages;
  VtraceLimits<float> limits;
  SurrogateChoice surrogate;
  double beta1, beta2, average_decay;
  float importance_max, kl_coef, proximal_coef, value_scale;  // the last: 2 value_coef / N
};

inline constexpr int kPieceSums = 12;
// Rows of d_log_std and losses: a warp has some choices of a row.
inline int rows_per_block(int heads_with_choices) {
  return heads_with_choices <= 1 ? 8 : heads_with_choices <= 2 ? 4 : heads_with_choices <= 4 ? 2 : 1;
}
inline int row_blocks(int rows, int per_block) { return (rows + per_block - 1) / per_block; }

void evaluate_rows(const LossArrays& arrays, const LossOptions& options, cudaStream_t stream);
void compute_advantages(const LossArrays& arrays, const LossOptions& options, cudaStream_t stream);
// Multipliers and derivatives, and the figures, also where none of the former are due.
void output_gradient(const LossArrays& arrays, const LossOptions& options, cudaStream_t stream);
void prepare_loss();  // once, before all others

// A surrogate over arrays of any length, for the benchmark.
void surrogate_over(const SurrogateChoice& choice, const float* log_ratio, const float* advantage, float* multiplier,
                    std::size_t size, cudaStream_t stream);

}  // namespace gipo::cuda
