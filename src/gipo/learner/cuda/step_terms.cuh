// From norms to the next weights: what one block decides, and what a thread does to its parameters.
#pragma once

#include "gipo/learner/cuda/step.h"
#include "gipo/policy/distribution_terms.h"

namespace gipo::cuda {

// Of the gradient: the norm clip.
__device__ inline double clip_scale(const StepOptions& o, double norm) {
  return smaller_of(1.0, o.max_norm / (norm + 1e-6));
}
__device__ inline AdamWStep<float> constants_of(const StepOptions& o, double rate, double norm, double beta1_power,
                                                double beta2_power) {
  return adamw_constants<float>({o.beta1, o.beta2, o.epsilon, o.weight_decay}, rate, clip_scale(o, norm), beta1_power,
                                beta2_power);
}

// The norms of both gradients, and whether the step is made.
__device__ inline bool is_skipped(const StepOptions& o, const StepState& state, const double (&squares)[2],
                                  Figures& f) {
  f.policy_norm = o.policy_due ? sqrt(squares[0]) : 0.0;
  f.value_norm = sqrt(squares[1]);
  const bool finite =
      isfinite(f.policy_norm) && isfinite(f.value_norm) && isfinite(f.policy_loss) && isfinite(f.value_loss);
  return !finite || state.skipped_in_a_row >= o.most_bad;
}

// Constants of the step by three threads of a block of at least three warps, each its own.
// squares: of the gradients of policy and critic. powers: as step_power has them.
__device__ inline void set_constants(const BatchHeader& header, const StepOptions& o, const double (&squares)[2],
                                     const double* powers, StepConstants& c) {
  if (threadIdx.x == 0) {
    c.policy = constants_of(o, header.policy_rate, o.policy_due ? sqrt(squares[0]) : 0.0, powers[0], powers[1]);
  } else if (threadIdx.x == 32) {
    c.critic = constants_of(o, header.value_rate, sqrt(squares[1]), powers[2], powers[3]);
  } else if (threadIdx.x == 64) {
    c.average_step = static_cast<float>(average_step(o.average_decay, powers[4]));
  }
}

// By one thread.
__device__ inline void report_step(const StepArrays& a, const StepOptions& o, StepState state, bool skip,
                                   const Figures& f) {
  if (skip) {
    ++state.skipped;
    ++state.skipped_in_a_row;
  } else {
    state.skipped_in_a_row = 0;
    state.policy_steps += o.policy_due;
    ++state.critic_steps;
  }
  *a.state = state;
  a.report->figures = f;
  a.report->state = state;
  a.report->was_skipped = skip;
}

// Four parameters from i on, and what AdamW and the average keep of them. A policy's and a critic's never share them.
struct FourParameters {
  float4 value, first, second, average;
};
__device__ inline FourParameters four_parameters(const StepArrays& a, const StepOptions& o, int i) {
  const auto at = [i](const float* values) { return *reinterpret_cast<const float4*>(values + i); };
  FourParameters four{at(a.parameters), at(a.first), at(a.second), {0, 0, 0, 0}};
  if (i < o.policy_size && o.keeps_average) four.average = at(a.average);
  return four;
}

// Their step, by their gradient.
__device__ inline void step_four(const StepArrays& a, const StepOptions& o, const AdamWStep<float>& step, float t,
                                 int i, const float4& g, const FourParameters& before) {
  const bool policy = i < o.policy_size;
  const auto at = [i](float* values) { return reinterpret_cast<float4*>(values + i); };
  float4 p = before.value, m = before.first, v = before.second;
  const float4 q = before.average;
  adamw_step(step, g.x, p.x, m.x, v.x);
  adamw_step(step, g.y, p.y, m.y, v.y);
  adamw_step(step, g.z, p.z, m.z, v.z);
  adamw_step(step, g.w, p.w, m.w, v.w);
  if (policy && i + 3 >= o.network_size) {
    const auto constrained = [&](float x, int k) {
      return i + k < o.network_size ? x : within(x, static_cast<float>(kMinLogStd), static_cast<float>(kMaxLogStd));
    };
    p = {constrained(p.x, 0), constrained(p.y, 1), constrained(p.z, 2), constrained(p.w, 3)};
  }
  *at(a.parameters) = p;
  *at(a.first) = m;
  *at(a.second) = v;
  if (!policy || !o.keeps_average) return;
  *at(a.average) = {(1 - t) * q.x + t * p.x, (1 - t) * q.y + t * p.y, (1 - t) * q.z + t * p.z, (1 - t) * q.w + t * p.w};
}
__device__ inline void step_four(const StepArrays& a, const StepOptions& o, const StepConstants& c, int i,
                                 const float4& g) {
  const bool policy = i < o.policy_size;
  if (policy && !o.policy_due) return;
  step_four(a, o, policy ? c.policy : c.critic, c.average_step, i, g, four_parameters(a, o, i));
}

}  // namespace gipo::cuda
