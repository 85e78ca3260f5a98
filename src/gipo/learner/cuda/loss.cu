#include <algorithm>
#include <cstddef>

#include "gipo/learner/cuda/launch.cuh"
#include "gipo/learner/cuda/loss.h"
#include "gipo/learner/cuda/loss_rows.cuh"
#include "gipo/learner/cuda/ptx.cuh"

namespace gipo::cuda {
namespace {

constexpr int kRowThreads = 256, kRowWarps = kRowThreads / 32;
constexpr int kStretchThreads = 32;
constexpr int kBoundThreads = 1024;

// One warp for each row: its distribution, log-probs and ratios.
__global__ void __launch_bounds__(kRowThreads)
    evaluate_kernel(const __grid_constant__ LossArrays a, const __grid_constant__ LossOptions o) {
  let_next_launch_begin();
  wait_for_launch_before();
  const int row = blockIdx.x * kRowWarps + threadIdx.x / 32;
  if (row >= o.n) return;
  const std::size_t begin = static_cast<std::size_t>(row) * o.outputs;
  evaluate_row(a, o, row, a.outputs + begin, a.average_outputs ? a.average_outputs + begin : nullptr);
}

// One thread for each stretch, or for each sample where advantages were stored.
__global__ void __launch_bounds__(kStretchThreads)
    advantage_kernel(const __grid_constant__ LossArrays a, const __grid_constant__ LossOptions o) {
  let_next_launch_begin();
  wait_for_launch_before();
  const int which = blockIdx.x * kStretchThreads + threadIdx.x;
  if (blockIdx.x == gridDim.x - 1) {
    if (threadIdx.x < 5) a.powers[threadIdx.x] = step_power(o, *a.state, threadIdx.x);
    return;
  }
  CardStretch s{which, which < o.n ? 1 : 0, 0};
  if (o.advantages == Advantages::kStored) {
    if (which >= o.n) return;
    a.advantage[which] = a.stored_advantage[which];
    a.target[which] = a.stored_target[which];
  } else {
    if (which >= a.header->stretches) return;
    s = a.stretches[which];
    stretch_advantages(o, s, s.terminated ? 0.0f : a.values[o.n + which],
                       {a.reward, a.values, a.joint, a.advantage, a.target});
  }
#pragma unroll 8
  for (int t = s.begin; t < s.begin + s.length; ++t) a.d_value[t] = o.value_scale * (a.values[t] - a.target[t]);
}

__global__ void __launch_bounds__(kBoundThreads)
    bound_kernel(const __grid_constant__ LossArrays a, const __grid_constant__ LossOptions o, double most) {
  __shared__ double room[(kBoundThreads / 32 + 1) * 2];
  const float bound = second_moment_bound(a, o, most, room);
  if (threadIdx.x == 0) *a.bound = bound;
}

// kRowsPerBlock rows to a block, a warp for each: multipliers, derivatives by the outputs and by the log standard
// deviations. The last block computes the figures of the batch.
__global__ void __launch_bounds__(kRowThreads)
    output_gradient_kernel(const __grid_constant__ LossArrays a, const __grid_constant__ LossOptions o) {
  __shared__ double room[(kRowWarps + 1) * batch_sums::kCount];
  auto* const d_log_std = shared_memory<float>();  // [kRowsPerBlock, extras]
  let_next_launch_begin();
  wait_for_launch_before();
  const Moments moments = moments_of(a.advantage, o.n, room);
  if (blockIdx.x == gridDim.x - 1) {
    const Figures f = figures_of(a, o, moments, a.advantage, a.target, a.values, room);
    if (threadIdx.x == 0) *a.figures = f;
    return;
  }
  const double factor = o.normalise ? normalising_factor(moments.deviation, moments.largest) : 0;
  const auto advantage_of = [&](int row) {
    return o.normalise ? normalised(a.advantage[row], moments.mean, factor) : a.advantage[row];
  };
  const int first = blockIdx.x * kRowsPerBlock, end = min(first + kRowsPerBlock, o.n);
  double losses[1] = {surrogate_losses(a, o, first, end, advantage_of, [&](double) { return *a.bound; })};
  block_sums(losses, room);
  if (threadIdx.x == 0) a.losses[blockIdx.x] = losses[0];
  if (!o.gradient_due) return;
  for (int row = first + static_cast<int>(threadIdx.x) / 32; row < end; row += kRowWarps) {
    const std::size_t begin = static_cast<std::size_t>(row) * o.outputs;
    output_gradient_row(a, o, row, a.outputs + begin, a.average_outputs ? a.average_outputs + begin : nullptr,
                        a.d_outputs + begin, d_log_std + (row - first) * o.extras);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < o.extras; e += kRowThreads) {
    float sum = 0;
    for (int r = 0; r < end - first; ++r) sum += d_log_std[r * o.extras + e];
    a.d_log_std[static_cast<std::size_t>(blockIdx.x) * o.extras + e] = sum;
  }
}

constexpr std::size_t kMostShared = 200 << 10;
std::size_t log_std_bytes(const LossOptions& o) { return sizeof(float) * kRowsPerBlock * o.extras; }

template <class Functor>
__global__ void surrogate_kernel(Functor functor, const float4* log_ratio, const float4* advantage, float4* multiplier,
                                 std::size_t size) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const float4 x = __ldcs(log_ratio + i), y = __ldcs(advantage + i);
  __stcs(multiplier + i, {surrogate_term(functor, x.x, y.x).multiplier, surrogate_term(functor, x.y, y.y).multiplier,
                          surrogate_term(functor, x.z, y.z).multiplier, surrogate_term(functor, x.w, y.w).multiplier});
}

}  // namespace

void prepare_loss() {
  check(cudaFuncSetAttribute(output_gradient_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kMostShared)),
        "shared memory");
}

void evaluate_rows(const LossArrays& arrays, const LossOptions& options, cudaStream_t stream) {
  launch_as(LaunchKind::kEarly, evaluate_kernel, (options.n + kRowWarps - 1) / kRowWarps, kRowThreads, 0, stream,
            "the distributions", arrays, options);
}

void compute_advantages(const LossArrays& arrays, const LossOptions& options, cudaStream_t stream) {
  launch_as(LaunchKind::kEarly, advantage_kernel, (options.n + kStretchThreads - 1) / kStretchThreads + 1,
            kStretchThreads, 0, stream, "the advantages", arrays, options);
  visit_surrogate(options.surrogate, [&](const auto& functor) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(functor)>, SecondMoment>) {
      if (options.ratios_due) {
        launch(bound_kernel, 1, kBoundThreads, 0, stream, "a bound", arrays, options, double{functor.most});
      }
    }
  });
}

void output_gradient(const LossArrays& arrays, const LossOptions& options, cudaStream_t stream) {
  const int blocks = options.ratios_due ? row_blocks(options.n) : 0;
  launch_as(LaunchKind::kEarly, output_gradient_kernel, blocks + 1, kRowThreads, log_std_bytes(options), stream,
            "the derivatives by outputs", arrays, options);
}

void surrogate_over(const SurrogateChoice& choice, const float* log_ratio, const float* advantage, float* multiplier,
                    std::size_t size, cudaStream_t stream) {
  visit_surrogate(choice, [&](const auto& functor) {
    using Functor = std::remove_cvref_t<decltype(functor)>;
    if constexpr (std::is_same_v<Functor, GipoTerm<GaussianWeight, PullBack::kDamped>> ||
                  std::is_same_v<Functor, ClippedRatioTerm> || std::is_same_v<Functor, SapoTerm>) {
      launch(surrogate_kernel<Functor>, static_cast<int>((size / 4 + 255) / 256), 256, 0, stream, "the surrogate",
             Functor(functor), reinterpret_cast<const float4*>(log_ratio), reinterpret_cast<const float4*>(advantage),
             reinterpret_cast<float4*>(multiplier), size / 4);
    }
  });
}

}  // namespace gipo::cuda
