#include "gipo/kernels/reduce.cuh"
#include "gipo/learner/cuda/launch.cuh"
#include "gipo/learner/cuda/ptx.cuh"
#include "gipo/learner/cuda/step_terms.cuh"

namespace gipo::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

__device__ float sum_of_parts(const GradientPart& part, int i, int first_split, int step) {
  float sum = 0;
#pragma unroll 8
  for (int s = first_split; s < part.splits; s += step) sum += part.parts[s * part.stride + i];
  return sum;
}

// By the last block: norms, whether all is finite, and the constants of the step.
__device__ void finish(const StepArrays& a, const StepOptions& o, double* room) {
  double sums[3] = {};
  for (int b = threadIdx.x; b < a.block_count; b += kThreads) {
    sums[a.blocks[b].part.critic ? 1 : 0] += __ldcg(a.squares + b);
  }
#pragma unroll
  for (int network = 0; network < 2; ++network) {
#pragma unroll 1
    for (const SquaresOfGradient& whole : a.whole[network]) {
      for (int i = threadIdx.x; i < whole.count; i += kThreads) sums[network] += whole.squares[i];
    }
  }
  for (int b = threadIdx.x; b < a.loss_count; b += kThreads) sums[2] += a.losses[b];
  block_sums(sums, room);
  const double squares[2] = {sums[0], sums[1]};
  set_constants(*a.header, o, squares, a.powers, *a.constants);
  if (threadIdx.x != 96) return;
  const StepState state = *a.state;
  Figures f = *a.figures;
  f.policy_loss = o.loss_scale * sums[2];
  const bool skip = is_skipped(o, state, squares, f);
  a.constants->skip = skip;
  *a.finished = 0;
  report_step(a, o, state, skip, f);
}

__global__ void __launch_bounds__(kThreads)
    sum_kernel(const __grid_constant__ StepArrays a, const __grid_constant__ StepOptions o) {
  __shared__ double room[kWarps * 3];
  __shared__ bool last;
  let_next_launch_begin();
  wait_for_launch_before();
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
  } else if ((part.stride | part.first | begin | block.count) % 4 == 0 &&
             reinterpret_cast<std::uintptr_t>(part.parts) % 16 == 0) {
    for (int i = begin + 4 * threadIdx.x; i < end; i += 4 * kThreads) {
      float4 g = {0, 0, 0, 0};
#pragma unroll 8
      for (int k = 0; k < part.splits; ++k) {
        const float4 v = *reinterpret_cast<const float4*>(part.parts + k * part.stride + i);
        g.x += v.x, g.y += v.y, g.z += v.z, g.w += v.w;
      }
      take(i, g.x), take(i + 1, g.y), take(i + 2, g.z), take(i + 3, g.w);
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
  finish(a, o, room);
}

__global__ void __launch_bounds__(kThreads)
    step_kernel(const __grid_constant__ StepArrays a, const __grid_constant__ StepOptions o) {
  let_next_launch_begin();
  wait_for_launch_before();
  const StepConstants& c = *a.constants;
  const int i = 4 * (blockIdx.x * kThreads + threadIdx.x);
  if (i >= o.size || c.skip) return;
  step_four(a, o, c, i, *reinterpret_cast<const float4*>(a.gradient + i));
}

}  // namespace

void sum_gradients(const StepArrays& arrays, const StepOptions& options, cudaStream_t stream) {
  launch_as(LaunchKind::kEarly, sum_kernel, arrays.block_count, kThreads, 0, stream, "the gradients", arrays, options);
}

void step_weights(const StepArrays& arrays, const StepOptions& options, cudaStream_t stream) {
  launch_as(LaunchKind::kEarly, step_kernel, (options.size / 4 + kThreads - 1) / kThreads, kThreads, 0, stream, "AdamW",
            arrays, options);
}

}  // namespace gipo::cuda
