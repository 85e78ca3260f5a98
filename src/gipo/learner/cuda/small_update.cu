#include "gipo/learner/cuda/launch.cuh"
#include "gipo/learner/cuda/loss_rows.cuh"
#include "gipo/learner/cuda/small_network.cuh"
#include "gipo/learner/cuda/small_update.h"
#include "gipo/learner/cuda/step_terms.cuh"

namespace gipo::cuda {
namespace {

constexpr int kSums = 3;
constexpr int kRoomDoubles = (kSmallWarps + 1) * batch_sums::kCount;

struct SmallUpdate {
  SmallPlan plan;
  SmallArrays arrays;
  LossArrays loss;
  LossOptions loss_options;
  StepArrays step;
  StepOptions step_options;
};

// Until all blocks are here, and see what the others wrote. Each block adds one, and the first one as much more as makes
// the highest bit change when all have: nothing has to be reset. `meanwhile`: work of the other threads.
template <class F>
__device__ void wait_for_blocks(unsigned* arrived, F&& meanwhile) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    const unsigned step = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u, before = atomicAdd(arrived, step);
    while (((load_acquire(arrived) ^ before) & 0x80000000u) == 0) {
    }
  } else {
    meanwhile();
  }
  __syncthreads();
}

// First in shared memory.
struct Common {
  double room[kRoomDoubles];
  double powers[5];
  StepState state;
  BatchHeader header;
  Figures figures;
  StepConstants constants;
};

template <ProductKind kKind>
__global__ void __launch_bounds__(kSmallThreads, 1) small_update_kernel(const __grid_constant__ SmallUpdate u) {
  auto& shared = *shared_memory<Common>();
  auto* const floats = shared_memory<float>();
  const LossArrays& a = u.loss;
  const LossOptions& o = u.loss_options;
  const StepArrays& s = u.step;
  const StepOptions& so = u.step_options;
  const SmallPlan& plan = u.plan;
  const int tid = threadIdx.x, warp = tid / 32, n = o.n;
  const bool policy = static_cast<int>(blockIdx.x) < plan.policy_blocks;
  const SmallNetwork& net = policy ? plan.policy : plan.critic;
  float* const memory = floats + plan.network;
  double* const room = shared.room;
  const int first = (policy ? blockIdx.x : blockIdx.x - plan.policy_blocks) * plan.rows_per_block;
  const int outputs = net.layer[net.layers - 1].out, ldo = small_stride(outputs);
  const float* const y = memory + net.layer[net.layers - 1].outputs;
  float* const other = floats + plan.average_outputs;

  // Forward, and the distributions of the rows. Weights are on their way before it is known how many rows there are.
  const bool looks_at_average = policy && u.arrays.average;
  if (o.ratios_due || !policy) {
    begin_weights(memory, net, looks_at_average ? u.arrays.average : policy ? u.arrays.policy : u.arrays.critic);
  }
  if (tid == 0) {
    shared.state = *s.state;
    shared.header = *s.header;
  }
  const bool stored = o.advantages == Advantages::kStored;
  const int limit = policy || stored ? n : s.header->rows, end = min(first + plan.rows_per_block, limit);
  const bool works = first < limit && (o.ratios_due || !policy);
  if (works) {
    const auto copied = [] {
      end_group();
      wait_for_groups<0>();
      __syncthreads();
    };
    begin_matrix(memory + net.input, u.arrays.observation + static_cast<std::size_t>(first) * plan.observation_size,
                 plan.observation_size, end - first, net.layer[0].in, net.rows);
    copied();
    forward<kKind>(memory, net);
    if (looks_at_average) {
      for (int i = tid; i < net.rows * ldo; i += kSmallThreads) other[i] = y[i];
      begin_weights(memory, net, u.arrays.policy);
      copied();
      forward<kKind>(memory, net);
    }
    if (policy) {
      for (int row = first + warp; row < end; row += kSmallWarps) {
        evaluate_row(a, o, row, y + (row - first) * ldo, other + (row - first) * ldo);
      }
    } else {
      for (int row = first + tid; row < end; row += kSmallThreads) u.arrays.values[row] = y[(row - first) * ldo];
    }
  }
  wait_for_blocks(u.arrays.arrived, [&] {
    if (tid >= kSmallThreads - 5) {
      const int which = kSmallThreads - 1 - tid;
      shared.powers[which] = step_power(o, shared.state, which);
    }
  });

  // Advantages of the whole batch, by every block alike.
  float *const advantage = floats + plan.steps, *const target = advantage + n, *const reward = target + n,
               *const value = reward + n, *const joint = value + n;
  for (int i = tid; i < n; i += kSmallThreads) {
    value[i] = __ldcg(u.arrays.values + i);
    if (stored) {
      advantage[i] = a.stored_advantage[i];
      target[i] = a.stored_target[i];
    } else {
      reward[i] = a.reward[i];
      joint[i] = o.ratios_due ? __ldcg(a.joint + i) : 0.0f;
    }
  }
  __syncthreads();
  for (int w = tid; !stored && w < shared.header.stretches; w += kSmallThreads) {
    const CardStretch stretch = a.stretches[w];
    stretch_advantages(o, stretch, stretch.terminated ? 0.0f : __ldcg(u.arrays.values + n + w),
                       {reward, value, joint, advantage, target});
  }
  __syncthreads();

  // Derivatives by the outputs, and by the parameters.
  float* const delta = memory + net.delta[0];
  double losses[1] = {};
  const bool learns = works && first < n && (!policy || so.policy_due);
  if (learns) {
    for (int i = tid; i < net.rows * ldo; i += kSmallThreads) delta[i] = 0;
  }
  if (policy || blockIdx.x == gridDim.x - 1) {
    const Moments moments = moments_of(advantage, n, room);
    if (!policy) {
      const Figures f = figures_of(a, o, moments, advantage, target, value, room);
      if (tid == 0) *const_cast<Figures*>(s.figures) = f;
    } else if (o.ratios_due) {
      const double factor = o.normalise ? normalising_factor(moments.deviation, moments.largest) : 0;
      losses[0] = surrogate_losses(
          a, o, first, end,
          [&](int row) { return o.normalise ? normalised(advantage[row], moments.mean, factor) : advantage[row]; },
          [&](double most) { return second_moment_bound(a, o, most, room); });
      block_sums(losses, room);
    }
  }
  __syncthreads();
  if (learns) {
    float* const gradient = policy ? u.arrays.policy_parts + blockIdx.x * u.arrays.policy_stride
                                   : u.arrays.critic_parts + (blockIdx.x - plan.policy_blocks) * u.arrays.critic_stride;
    if (policy) {
      auto* const d_log_std = floats + plan.steps;  // [rows, extras]; nobody reads the batch's steps any more
      for (int row = first + warp; row < end; row += kSmallWarps) {
        const int within = row - first;
        output_gradient_row(a, o, row, y + within * ldo, other + within * ldo, delta + within * ldo,
                            d_log_std + within * o.extras);
      }
      __syncthreads();
      for (int e = tid; e < o.extras; e += kSmallThreads) {
        float sum = 0;
        for (int r = 0; r < end - first; ++r) sum += d_log_std[r * o.extras + e];
        gradient[so.network_size + e] = sum;
      }
    } else {
      for (int row = first + tid; row < min(end, n); row += kSmallThreads) {
        delta[(row - first) * ldo] = o.value_scale * (value[row] - target[row]);
      }
      __syncthreads();
    }
    backward<kKind>(memory, net, gradient);
  }
  wait_for_blocks(u.arrays.arrived, [] {});

  // Sums of the parts, each block its share of the parameters, always in the same order.
  const int fours = so.size / 4, share = (fours + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int first_four = min(static_cast<int>(blockIdx.x) * share, fours), last_four = min(first_four + share, fours);
  double sums[kSums] = {0, 0, 0};
  for (int four = first_four + tid; four < last_four; four += kSmallThreads) {
    const int i = 4 * four;
    const bool of_policy = i < so.policy_size;
    if (of_policy && !so.policy_due) continue;
    const float* part = of_policy ? u.arrays.policy_parts + i : u.arrays.critic_parts + (i - so.policy_size);
    const std::size_t stride = of_policy ? u.arrays.policy_stride : u.arrays.critic_stride;
    const int parts = of_policy ? plan.policy_blocks : plan.learning_critic_blocks;
    float4 g = {0, 0, 0, 0};
#pragma unroll 16
    for (int p = 0; p < parts; ++p) {
      const float4 v = __ldcg(reinterpret_cast<const float4*>(part + p * stride));
      g.x += v.x, g.y += v.y, g.z += v.z, g.w += v.w;
    }
    *reinterpret_cast<float4*>(s.gradient + i) = g;
    const auto square = [](float x) { return static_cast<double>(x) * static_cast<double>(x); };
    const double squares = square(g.x) + square(g.y) + square(g.z) + square(g.w);
    sums[0] += of_policy ? squares : 0;
    sums[1] += of_policy ? 0 : squares;
  }
  block_sums(sums, room);
  if (tid == 0) {
    double* const out = u.arrays.sums + kSums * blockIdx.x;
    out[0] = sums[0];
    out[1] = sums[1];
    out[2] = losses[0];
  }
  wait_for_blocks(u.arrays.arrived, [] {});

  // The step, decided by every block alike.
  for (int k = 0; k < kSums; ++k) {
    sums[k] = tid < static_cast<int>(gridDim.x) ? __ldcg(u.arrays.sums + kSums * tid + k) : 0;
  }
  block_sums(sums, room);
  if (tid == 0) {
    Figures f;
    static_assert(sizeof f % sizeof(double) == 0);
    for (std::size_t k = 0; k < sizeof f / sizeof(double); ++k) {
      reinterpret_cast<double*>(&f)[k] = __ldcg(reinterpret_cast<const double*>(s.figures) + k);
    }
    f.policy_loss = so.loss_scale * sums[2];
    shared.constants = decide(shared.header, so, shared.state, {sums[0], sums[1]}, shared.powers, f);
    if (blockIdx.x == 0) report_step(s, so, shared.state, shared.constants.skip, f);
  }
  __syncthreads();
  if (shared.constants.skip) return;
  for (int four = first_four + tid; four < last_four; four += kSmallThreads) {
    step_four(s, so, shared.constants, 4 * four, *reinterpret_cast<const float4*>(s.gradient + 4 * four));
  }
}

template <class F>
auto with_kernel(ProductKind kind, F&& f) {
  switch (kind) {
    case ProductKind::kTf32:
      return f(small_update_kernel<ProductKind::kTf32>);
    case ProductKind::kFloat:
      return f(small_update_kernel<ProductKind::kFloat>);
    case ProductKind::kTf32x3:
      break;
  }
  return f(small_update_kernel<ProductKind::kTf32x3>);
}

}  // namespace

std::size_t small_update_common_bytes() { return (sizeof(Common) + 15) / 16 * 16; }

void prepare_small_update(ProductKind kind, std::size_t shared) {
  with_kernel(kind, [&](auto* kernel) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
          "shared memory");
  });
}

void run_small_update(const SmallPlan& plan, const SmallArrays& arrays, const LossArrays& loss,
                      const LossOptions& loss_options, const StepArrays& step, const StepOptions& step_options,
                      ProductKind kind, cudaStream_t stream) {
  with_kernel(kind, [&](auto* kernel) {
    launch_as(LaunchKind::kTogether, kernel, plan.policy_blocks + plan.critic_blocks, kSmallThreads, plan.shared,
              stream, "an update", SmallUpdate{plan, arrays, loss, loss_options, step, step_options});
  });
}

}  // namespace gipo::cuda
