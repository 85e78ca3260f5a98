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

// f(row, dimension) for the rows of a block, by a warp for each with choices, by a thread for each other.
template <class Choices, class Gaussian>
__device__ void each_head(const LossArrays& a, const LossOptions& o, int first, int end, Choices&& choices,
                          Gaussian&& gaussian) {
  const int items = (end - first) * o.dims;
  for (int i = threadIdx.x / 32; i < items; i += kRowWarps) {
    if (a.heads[i % o.dims].choices > 0) choices(first + i / o.dims, i % o.dims);
  }
  if (o.extras == 0) return;
  for (int i = threadIdx.x; i < items; i += kRowThreads) {
    if (a.heads[i % o.dims].choices == 0) gaussian(first + i / o.dims, i % o.dims);
  }
}
__device__ RowOutputs outputs_of(const LossArrays& a, const LossOptions& o, int row) {
  const std::size_t begin = static_cast<std::size_t>(row) * o.outputs;
  return row_outputs(a, o, row, a.outputs + begin, a.average_outputs ? a.average_outputs + begin : nullptr);
}

// rows_per_block rows to a block: their distributions, log-probs and ratios.
__global__ void __launch_bounds__(kRowThreads)
    evaluate_kernel(const __grid_constant__ LossArrays a, const __grid_constant__ LossOptions o) {
  auto* const terms = shared_memory<HeadTerms>();  // [rows_per_block, dims]
  rehearse_and_run([&] {
    const int first = blockIdx.x * o.rows_per_block, end = min(first + o.rows_per_block, o.n);
    each_head(
        a, o, first, end,
        [&](int row, int d) {
          const HeadTerms found = evaluate_head<32>(a, o, row, d, outputs_of(a, o, row));
          if (threadIdx.x % 32 == 0) terms[(row - first) * o.dims + d] = found;
        },
        [&](int row, int d) {
          terms[(row - first) * o.dims + d] = evaluate_head<1>(a, o, row, d, outputs_of(a, o, row));
        });
    __syncthreads();
    const int row = first + static_cast<int>(threadIdx.x);
    if (row < end) combine_heads(a, o, row, true, [&](int d) { return terms[(row - first) * o.dims + d]; });
  });
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
  rehearse_and_run([&] {
    if (blockIdx.x == gridDim.x - 1) {
      if (threadIdx.x < 5) a.powers[threadIdx.x] = step_power(o, *a.state, threadIdx.x);
      return;
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, piece = blockIdx.x * kStretchWarps + warp;
    // What a piece is, is read before it is known whether there is one: the arrays are that long.
    const bool stored = o.advantages == Advantages::kStored, in_batch = piece < o.n;
    const CardStretch s = stored || !in_batch ? CardStretch{} : a.stretches[piece];
    const float value_after = stored || !in_batch ? 0.0f : a.values[o.n + piece];
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
    if (stored) {
      const int begin = piece * kStoredPiece;
      go_through({begin, min(kStoredPiece, o.n - begin), 0}, [&](int first, int count) {
        for (int i = lane; i < count; i += 32) {
          mine[1][i] = a.values[first + i];
          mine[4][i] = a.stored_advantage[first + i];
          mine[5][i] = a.stored_target[first + i];
        }
      });
    } else {
      const float after = s.terminated ? 0.0f : value_after;
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
  });
}

__global__ void __launch_bounds__(kBoundThreads)
    bound_kernel(const __grid_constant__ LossArrays a, const __grid_constant__ LossOptions o, double most) {
  __shared__ double room[kBoundThreads / 32 * 2];
  const float bound = second_moment_bound(a, o, most, room);
  if (threadIdx.x == 0) *a.bound = bound;
}

// Of all pieces of the batch, by a block: f(which, value) for each of the sums.
template <int kCount, class F>
__device__ void each_piece(const LossArrays& a, const LossOptions& o, const int (&which)[kCount], F&& f) {
  const int pieces = pieces_of(a, o);
  for (int i = threadIdx.x; i < pieces; i += kRowThreads) {
    double found[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) found[k] = a.pieces[static_cast<std::size_t>(which[k]) * o.n + i];
#pragma unroll
    for (int k = 0; k < kCount; ++k) f(k, found[k]);
  }
}

// rows_per_block rows to a block: multipliers, derivatives by the outputs and by the log standard deviations. The last
// block computes the figures of the batch.
__global__ void __launch_bounds__(kRowThreads)
    output_gradient_kernel(const __grid_constant__ LossArrays a, const __grid_constant__ LossOptions o) {
  __shared__ double room[kRowWarps * kAllSums];
  auto* const d_log_std = shared_memory<float>();  // [rows_per_block, extras]
  rehearse_and_run([&] {
    float largest = 0;
    if (blockIdx.x == gridDim.x - 1) {
      double all[kAllSums] = {};
      int which[kAllSums];
      for (int k = 0; k < kAllSums; ++k) which[k] = k;
      each_piece(a, o, which, [&](int k, double value) {
        if (k == kLargest) {
          largest = larger_of(largest, static_cast<float>(value));
        } else {
          all[k] += value;
        }
      });
      block_sums(all, room);
      largest = block_max(largest, reinterpret_cast<float*>(room));
      if (threadIdx.x != 0) return;
      const double of_advantages[2] = {all[batch_sums::kAdvantage], all[kAdvantageSquares]},
                   of_targets[2] = {all[batch_sums::kTarget], all[kTargetSquares]};
      BatchSums sums;
      for (int k = 0; k < batch_sums::kCount; ++k) sums[k] = all[k];
      *a.figures = figures_of(o, sums, moments_of(0.0, of_advantages, largest, o.n),
                              moments_of(0.0, of_targets, 0, o.n).squares);
      return;
    }
    double mean = 0, factor = 0;
    if (o.normalise) {
      double of_advantages[2] = {};
      each_piece(a, o, {batch_sums::kAdvantage, kAdvantageSquares, kLargest}, [&](int k, double value) {
        if (k == 2) {
          largest = larger_of(largest, static_cast<float>(value));
        } else {
          of_advantages[k] += value;
        }
      });
      const Moments moments = moments_of(0.0, of_advantages, largest, o.n, room);
      mean = moments.mean;
      factor = normalising_factor(moments.deviation, moments.largest);
    }
    const auto advantage_of = [&](int row) {
      return o.normalise ? normalised(a.advantage[row], mean, factor) : a.advantage[row];
    };
    const int first = blockIdx.x * o.rows_per_block, end = min(first + o.rows_per_block, o.n);
    double losses[1] = {surrogate_losses(a, o, first, end, advantage_of, [&](double) { return *a.bound; })};
    block_sums(losses, room);
    if (threadIdx.x == 0) a.losses[blockIdx.x] = losses[0];
    if (!o.gradient_due) return;
    const auto head = [&](auto lanes, int row, int d) {
      output_gradient_head<decltype(lanes)::value>(a, o, row, d, outputs_of(a, o, row),
                                                   a.d_outputs + static_cast<std::size_t>(row) * o.outputs,
                                                   d_log_std + (row - first) * o.extras);
    };
    each_head(
        a, o, first, end, [&](int row, int d) { head(std::integral_constant<int, 32>(), row, d); },
        [&](int row, int d) { head(std::integral_constant<int, 1>(), row, d); });
    if (o.extras == 0) return;
    __syncthreads();
    for (int e = threadIdx.x; e < o.extras; e += kRowThreads) {
      float sum = 0;
      for (int r = 0; r < end - first; ++r) sum += d_log_std[r * o.extras + e];
      a.d_log_std[static_cast<std::size_t>(blockIdx.x) * o.extras + e] = sum;
    }
  });
}

constexpr std::size_t kMostShared = 200 << 10;
std::size_t log_std_bytes(const LossOptions& o) {
  return sizeof(float) * static_cast<std::size_t>(o.rows_per_block * o.extras);
}
std::size_t terms_bytes(const LossOptions& o) {
  return sizeof(HeadTerms) * static_cast<std::size_t>(o.rows_per_block * o.dims);
}

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
  for (auto* kernel : {evaluate_kernel, output_gradient_kernel}) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostShared)),
          "shared memory");
  }
}

void evaluate_rows(const LossArrays& arrays, const LossOptions& options, cudaStream_t stream) {
  launch_as(LaunchKind::kEarly, evaluate_kernel, row_blocks(options.n, options.rows_per_block), kRowThreads,
            terms_bytes(options), stream, "the distributions", arrays, options);
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
  const int blocks = options.ratios_due ? row_blocks(options.n, options.rows_per_block) : 0;
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
