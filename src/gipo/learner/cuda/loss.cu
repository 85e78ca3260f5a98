#include <algorithm>
#include <cstddef>

#include "gipo/learner/cuda/launch.cuh"
#include "gipo/learner/cuda/loss.h"
#include "gipo/learner/cuda/loss_rows.cuh"
#include "gipo/learner/cuda/ptx.cuh"

namespace gipo::cuda {
namespace {

constexpr int kRowThreads = 256, kRowWarps = kRowThreads / 32;
constexpr int kStretchThreads = 128, kStretchWarps = kStretchThreads / 32, kChunk = 128, kStoredPiece = 64;
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

// What the pieces of a batch are summed up separately for: BatchSums, and then these.
enum { kAdvantageSquares = batch_sums::kCount, kTargetSquares, kLargest, kAllSums };
static_assert(kAllSums == kPieceSums);

__device__ int pieces_of(const LossArrays& a, const LossOptions& o) {
  return o.advantages == Advantages::kStored ? (o.n + kStoredPiece - 1) / kStoredPiece : a.header->stretches;
}

// One warp for each stretch, or for some samples where advantages were stored. The steps of a stretch are brought to
// shared memory by all lanes, from its end, and one lane goes through them.
__global__ void __launch_bounds__(kStretchThreads)
    advantage_kernel(const __grid_constant__ LossArrays a, const __grid_constant__ LossOptions o) {
  __shared__ float room[kStretchWarps][6][kChunk];
  let_next_launch_begin();
  wait_for_launch_before();
  if (blockIdx.x == gridDim.x - 1) {
    if (threadIdx.x < 5) a.powers[threadIdx.x] = step_power(o, *a.state, threadIdx.x);
    return;
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, piece = blockIdx.x * kStretchWarps + warp;
  if (piece >= pieces_of(a, o)) return;
  float(&mine)[6][kChunk] = room[warp];
  const Steps steps{mine[0], mine[1], mine[2], mine[3], mine[4], mine[5]};
  double sums[kAllSums] = {};
  float largest = 0;
  const auto go_through = [&](const CardStretch& s, auto&& chunk) {
    for (int end = s.length; end > 0; end -= kChunk) {
      const int begin = max(0, end - kChunk), first = s.begin + begin;
      chunk(first, end - begin);
      __syncwarp();
      for (int i = lane; i < end - begin; i += 32) {
        const float advantage = steps.advantage[i], target = steps.target[i], value = mine[1][i];
        a.advantage[first + i] = advantage;
        a.target[first + i] = target;
        a.d_value[first + i] = o.value_scale * (value - target);
        BatchSums sample = {};
        add_figures(a, o, first + i, advantage, target, value, sample);
        for (int k = 0; k < batch_sums::kCount; ++k) sums[k] += sample[k];
        sums[kAdvantageSquares] += static_cast<double>(advantage) * static_cast<double>(advantage);
        sums[kTargetSquares] += static_cast<double>(target) * static_cast<double>(target);
        largest = larger_of(largest, std::fabs(advantage));
      }
      __syncwarp();
    }
  };
  if (o.advantages == Advantages::kStored) {
    const int begin = piece * kStoredPiece;
    go_through({begin, min(kStoredPiece, o.n - begin), 0}, [&](int first, int count) {
      for (int i = lane; i < count; i += 32) {
        mine[1][i] = a.values[first + i];
        mine[4][i] = a.stored_advantage[first + i];
        mine[5][i] = a.stored_target[first + i];
      }
    });
  } else {
    const CardStretch s = a.stretches[piece];
    const float after = s.terminated ? 0.0f : a.values[o.n + piece];
    const auto by = [&](auto next) {
      go_through(s, [&](int first, int count) {
        for (int i = lane; i < count; i += 32) {
          mine[0][i] = a.reward[first + i];
          mine[1][i] = a.values[first + i];
          if (o.advantages == Advantages::kGae) continue;
          const VtraceWeights<float> weights = vtrace_weights(a.joint[first + i], o.limits);
          mine[2][i] = weights.rho;
          mine[3][i] = weights.trace;
        }
        __syncwarp();
        if (lane == 0) recursion(o, 0, count, steps, next);
      });
    };
    if (o.advantages == Advantages::kGae) {
      by(GaeNext<float>{after});
    } else {
      by(VtraceNext<float>{after, after});
    }
  }
  sums[kLargest] = warp_max(largest);
#pragma unroll
  for (int k = 0; k < kAllSums; ++k) {
    const double sum = k == kLargest ? sums[k] : warp_sum(sums[k]);
    if (lane == 0) a.pieces[static_cast<std::size_t>(k) * o.n + piece] = sum;
  }
}

__global__ void __launch_bounds__(kBoundThreads)
    bound_kernel(const __grid_constant__ LossArrays a, const __grid_constant__ LossOptions o, double most) {
  __shared__ double room[kBoundThreads / 32 * 2];
  const float bound = second_moment_bound(a, o, most, room);
  if (threadIdx.x == 0) *a.bound = bound;
}

// kRowsPerBlock rows to a block, a warp for each: multipliers, derivatives by the outputs and by the log standard
// deviations. The last block computes the figures of the batch.
__global__ void __launch_bounds__(kRowThreads)
    output_gradient_kernel(const __grid_constant__ LossArrays a, const __grid_constant__ LossOptions o) {
  __shared__ double room[kRowWarps * batch_sums::kCount];
  auto* const d_log_std = shared_memory<float>();  // [kRowsPerBlock, extras]
  let_next_launch_begin();
  wait_for_launch_before();
  const int pieces = pieces_of(a, o);
  const auto piece_sum = [&](int which) {
    double sum = 0;
    for (int i = threadIdx.x; i < pieces; i += kRowThreads) sum += a.pieces[static_cast<std::size_t>(which) * o.n + i];
    return sum;
  };
  float largest = 0;
  for (int i = threadIdx.x; i < pieces; i += kRowThreads) {
    largest = larger_of(largest, static_cast<float>(a.pieces[static_cast<std::size_t>(kLargest) * o.n + i]));
  }
  double of_advantages[2] = {piece_sum(batch_sums::kAdvantage), piece_sum(kAdvantageSquares)};
  const Moments moments = moments_of(0.0, of_advantages, largest, o.n, room);
  if (blockIdx.x == gridDim.x - 1) {
    BatchSums sums;
    for (int k = 0; k < batch_sums::kCount; ++k) sums[k] = piece_sum(k);
    block_sums(sums, room);
    double of_targets[2] = {piece_sum(batch_sums::kTarget), piece_sum(kTargetSquares)};
    const double squares = moments_of(0.0, of_targets, 0, o.n, room).squares;
    if (threadIdx.x == 0) *a.figures = figures_of(o, sums, moments, squares);
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
  launch_as(LaunchKind::kEarly, advantage_kernel, (options.n + kStretchWarps - 1) / kStretchWarps + 1, kStretchThreads,
            0, stream, "the advantages", arrays, options);
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
