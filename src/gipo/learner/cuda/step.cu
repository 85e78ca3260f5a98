#include "gipo/learner/cuda/launch.cuh"
#include "gipo/kernels/reduce.cuh"
#include "gipo/learner/cuda/step.h"
#include "gipo/policy/distribution_terms.h"

namespace gipo::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

__device__ float sum_of_parts(const GradientPart& part, int i, int first_split, int step) {
  float sum = 0;
#pragma unroll 8
  for (int s = first_split; s < part.splits; s += step) sum += part.parts[s * part.stride + i];
  return sum;
}

__device__ AdamWStep<float> constants_of(const StepOptions& o, double rate, double norm, double beta1_power,
                                         double beta2_power) {
  AdamWStep<float> s;
  s.beta1 = static_cast<float>(o.beta1);
  s.beta2 = static_cast<float>(o.beta2);
  s.epsilon = static_cast<float>(o.epsilon);
  s.rate = static_cast<float>(rate / (1.0 - beta1_power));
  s.second_scale = static_cast<float>(1.0 / (1.0 - beta2_power));
  s.keep = static_cast<float>(1.0 - rate * o.weight_decay);
  s.scale = static_cast<float>(smaller_of(1.0, o.max_norm / (norm + 1e-6)));
  return s;
}

// By the last block: norms, whether all is finite, and the constants of the step.
__device__ void decide(const StepArrays& a, const StepOptions& o, double* room) {
  double squares[2] = {};
  for (int b = threadIdx.x; b < a.block_count; b += kThreads) {
    squares[a.blocks[b].part.critic ? 1 : 0] += __ldcg(a.squares + b);
  }
  block_sums(squares, room);
  if (threadIdx.x != 0) return;
  StepState state = *a.state;
  Figures f = *a.figures;
  f.policy_norm = o.policy_due ? sqrt(squares[0]) : 0.0;
  f.value_norm = sqrt(squares[1]);
  const bool finite =
      isfinite(f.policy_norm) && isfinite(f.value_norm) && isfinite(f.policy_loss) && isfinite(f.value_loss);
  const bool skip = !finite || state.skipped_in_a_row >= o.most_bad;
  StepConstants c;
  c.policy = constants_of(o, a.header->policy_rate, f.policy_norm, a.powers[0], a.powers[1]);
  c.critic = constants_of(o, a.header->value_rate, f.value_norm, a.powers[2], a.powers[3]);
  // The mean of all policies so far, the latest counting most (learner.proximal_updates).
  c.average_step = static_cast<float>((1 - o.average_decay) / (1 - a.powers[4]));
  c.skip = skip;
  *a.constants = c;
  if (skip) {
    ++state.skipped;
    ++state.skipped_in_a_row;
  } else {
    state.skipped_in_a_row = 0;
    state.policy_steps += o.policy_due;
    ++state.critic_steps;
  }
  *a.state = state;
  *a.finished = 0;
  a.report->figures = f;
  a.report->state = state;
  a.report->was_skipped = skip;
}

__global__ void __launch_bounds__(kThreads)
    sum_kernel(const __grid_constant__ StepArrays a, const __grid_constant__ StepOptions o) {
  __shared__ double room[(kWarps + 1) * 2];
  __shared__ bool last;
  const GradientBlock& block = a.blocks[blockIdx.x];
  const GradientPart part = block.part;
  const int begin = block.begin, end = begin + block.count;
  double squares[1] = {};
  const auto take = [&](int i, float g) {
    a.gradient[part.first + i] = g;
    squares[0] += static_cast<double>(g) * static_cast<double>(g);
  };
  if (part.splits >= kManySplits) {
    const int lane = threadIdx.x % 32;
    for (int i = begin + threadIdx.x / 32; i < end; i += kWarps) {
      const float g = warp_sum(sum_of_parts(part, i, lane, 32));
      if (lane == 0) take(i, g);
    }
  } else {
    for (int i = begin + threadIdx.x; i < end; i += kThreads) take(i, sum_of_parts(part, i, 0, 1));
  }
  block_sums(squares, room);
  if (threadIdx.x == 0) {
    __stcg(a.squares + blockIdx.x, squares[0]);
    __threadfence();
    last = atomicAdd(a.finished, 1u) + 1 == gridDim.x;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  decide(a, o, room);
}

// Four parameters to a thread. A policy's and a critic's never share them.
__global__ void __launch_bounds__(kThreads)
    step_kernel(const __grid_constant__ StepArrays a, const __grid_constant__ StepOptions o) {
  const StepConstants& c = *a.constants;
  const int i = 4 * (blockIdx.x * kThreads + threadIdx.x);
  if (i >= o.size || c.skip) return;
  const bool policy = i < o.policy_size;
  if (policy && !o.policy_due) return;
  const AdamWStep<float> step = policy ? c.policy : c.critic;
  const auto at = [i](float* values) { return reinterpret_cast<float4*>(values + i); };
  float4 g = *at(a.gradient), p = *at(a.parameters), m = *at(a.first), v = *at(a.second);
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
  const float t = c.average_step;
  const float4 q = *at(a.average);
  *at(a.average) = {(1 - t) * q.x + t * p.x, (1 - t) * q.y + t * p.y, (1 - t) * q.z + t * p.z, (1 - t) * q.w + t * p.w};
}

}  // namespace

void sum_gradients(const StepArrays& arrays, const StepOptions& options, cudaStream_t stream) {
  launch(sum_kernel, arrays.block_count, kThreads, 0, stream, "the gradients", arrays, options);
}

void step_weights(const StepArrays& arrays, const StepOptions& options, cudaStream_t stream) {
  launch(step_kernel, (options.size / 4 + kThreads - 1) / kThreads, kThreads, 0, stream, "AdamW", arrays, options);
}

}  // namespace gipo::cuda
