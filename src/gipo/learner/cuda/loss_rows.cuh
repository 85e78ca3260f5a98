// Distributions of single rows, for the kernels that have them by themselves and those that have the networks before.
#pragma once

#include <cstddef>

#include "gipo/learner/cuda/loss.h"
#include "gipo/learner/cuda/reduce.cuh"
#include "gipo/policy/distribution_terms.h"

namespace gipo::cuda {

// A head of n choices by a whole warp; every lane gets the result. NaN is lost in the maximum, and not in the sum.
__device__ inline float log_sum_exp_of(const float* logits, const std::uint8_t* mask, int n) {
  float top = -HUGE_VALF;
#pragma unroll 8
  for (int k = threadIdx.x % 32; k < n; k += 32) {
    if (valid_choice(mask, k)) top = larger_of(top, logits[k]);
  }
  top = warp_max(top);
  float sum = 0;
#pragma unroll 8
  for (int k = threadIdx.x % 32; k < n; k += 32) {
    if (valid_choice(mask, k)) sum += std::exp(logits[k] - top);
  }
  return top + std::log(warp_sum(sum));
}

__device__ inline GaussianTerms<float> gaussian_of(const float* outputs, const float* log_std, const Head& head) {
  const float s = log_std[head.extra];
  return {outputs[head.output], s, std::exp(-s)};
}

// One row by a whole warp: its distribution, log-probs and ratios.
__device__ inline void evaluate_row(const LossArrays& a, const LossOptions& o, int row) {
  const int lane = threadIdx.x % 32;
  const float* outputs = a.outputs + static_cast<std::size_t>(row) * o.outputs;
  const bool average = o.centred || o.proximal;
  const float* other = average ? a.average_outputs + static_cast<std::size_t>(row) * o.outputs : nullptr;
  const std::uint8_t* mask = a.mask ? a.mask + static_cast<std::size_t>(row) * o.mask_size : nullptr;
  float entropy = 0, kl = 0, joint = 0, to_average = 0, to_policy = 0;
  for (int e = 0; e < o.extras; ++e) entropy += gaussian_entropy(a.log_std[e]);
  for (int d = 0; d < o.dims; ++d) {
    const Head head = a.heads[d];
    const std::size_t at = static_cast<std::size_t>(row) * o.dims + d;
    const float action = a.action[at];
    float log_prob, average_log_prob = 0;
    if (head.choices > 0) {
      const std::uint8_t* valid = mask ? mask + head.mask : nullptr;
      const float* logits = outputs + head.output;
      const float* average_logits = average ? other + head.output : nullptr;
      const float norm = log_sum_exp_of(logits, valid, head.choices);
      const float average_norm = average ? log_sum_exp_of(average_logits, valid, head.choices) : 0;
      float sum = 0, divergence = 0;
#pragma unroll 8
      for (int k = lane; k < head.choices; k += 32) {
        const ChoiceTerms<float> c = choice_terms(logits[k], valid_choice(valid, k), norm);
        sum -= c.p * c.log_p;
        if (!o.proximal) continue;
        const ChoiceTerms<float> q = choice_terms(average_logits[k], valid_choice(valid, k), average_norm);
        divergence = add_categorical_kl(divergence, &q.p, &q.log_p, &c.log_p, 1);
      }
      const float head_entropy = warp_sum(sum);
      entropy += head_entropy;
      if (o.proximal) kl += warp_sum(divergence);
      const int chosen = static_cast<int>(action);
      log_prob = choice_terms(logits[chosen], valid_choice(valid, chosen), norm).log_p;
      if (average) {
        average_log_prob = choice_terms(average_logits[chosen], valid_choice(valid, chosen), average_norm).log_p;
      }
      if (lane == 0) {
        a.norm[at] = norm;
        a.head_entropy[at] = head_entropy;
        if (average) a.average_norm[at] = average_norm;
      }
    } else {
      const GaussianTerms<float> pi = gaussian_of(outputs, a.log_std, head);
      log_prob = gaussian_log_prob(pi, action);
      if (average) {
        const GaussianTerms<float> q = gaussian_of(other, a.average_log_std, head);
        average_log_prob = gaussian_log_prob(q, action);
        if (o.proximal) kl += gaussian_kl(q, pi);
      }
    }
    const float behaviour = a.behaviour[at], log_ratio = log_prob - behaviour;
    joint += log_ratio;
    to_average += average_log_prob - behaviour;
    to_policy += log_prob - average_log_prob;
    if (!o.per_dimension || lane != 0) continue;
    a.ratio[at] = log_ratio;
    if (!o.centred) continue;
    a.trust[at] = log_prob - average_log_prob;
    a.importance[at] = importance_weight(average_log_prob - behaviour, o.importance_max);
  }
  if (lane != 0) return;
  a.joint[row] = joint;
  a.entropy[row] = entropy;
  if (o.proximal) a.proximal[row] = kl;
  if (o.per_dimension) return;
  a.ratio[row] = joint;
  if (!o.centred) return;
  a.trust[row] = to_policy;
  a.importance[row] = importance_weight(to_average, o.importance_max);
}

// Rows of block `block`, kRowsPerBlock of them, one to a warp: derivatives by the outputs and by the log standard
// deviations. d_log_std: shared, [kRowsPerBlock, extras]. For all threads of the block.
__device__ inline void output_gradient_of(const LossArrays& a, const LossOptions& o, int block, float* d_log_std) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const float inverse_size = 1.0f / static_cast<float>(o.n);
  const float entropy_coef = o.entropy_coef * inverse_size, kl_coef = o.proximal_coef * inverse_size;
  for (int within_block = warp; within_block < kRowsPerBlock; within_block += warps) {
    const int row = block * kRowsPerBlock + within_block;
    if (row >= o.n) {
      for (int e = lane; e < o.extras; e += 32) d_log_std[within_block * o.extras + e] = 0;
      continue;
    }
    const std::size_t begin = static_cast<std::size_t>(row) * o.outputs;
    const float* outputs = a.outputs + begin;
    const float* other = o.proximal ? a.average_outputs + begin : nullptr;
    const std::uint8_t* mask = a.mask ? a.mask + static_cast<std::size_t>(row) * o.mask_size : nullptr;
    for (int d = 0; d < o.dims; ++d) {
      const Head head = a.heads[d];
      const std::size_t at = static_cast<std::size_t>(row) * o.dims + d;
      const float action = a.action[at], d_log_prob = a.d_log_prob[at];
      if (head.choices > 0) {
        const std::uint8_t* valid = mask ? mask + head.mask : nullptr;
        const float norm = a.norm[at], entropy = a.head_entropy[at];
        const int chosen = static_cast<int>(action);
#pragma unroll 4
        for (int k = lane; k < head.choices; k += 32) {
          const bool is_valid = valid_choice(valid, k);
          const ChoiceTerms<float> c = choice_terms(outputs[head.output + k], is_valid, norm);
          float g = choice_gradient(c, d_log_prob, entropy_coef, entropy);
          if (other) {
            g += kl_coef * (c.p - choice_terms(other[head.output + k], is_valid, a.average_norm[at]).p);
          }
          if (k == chosen) g += d_log_prob;
          a.d_outputs[begin + head.output + k] = is_valid ? g : 0.0f;
        }
      } else if (lane == 0) {
        const GaussianTerms<float> pi = gaussian_of(outputs, a.log_std, head);
        GaussianGradient<float> g = gaussian_gradient(pi, action, d_log_prob, entropy_coef);
        if (other) add_gaussian_kl(gaussian_of(other, a.average_log_std, head), pi, kl_coef, g);
        a.d_outputs[begin + head.output] = g.mean;
        d_log_std[within_block * o.extras + head.extra] = g.log_std;
      }
    }
  }
  __syncthreads();
  for (int e = threadIdx.x; e < o.extras; e += blockDim.x) {
    float sum = 0;
    for (int r = 0; r < kRowsPerBlock; ++r) sum += d_log_std[r * o.extras + e];
    a.d_log_std[static_cast<std::size_t>(block) * o.extras + e] = sum;
  }
}

}  // namespace gipo::cuda
