#include "gipo/learner/cuda/launch.cuh"
#include "gipo/learner/cuda/loss_rows.cuh"
#include "gipo/learner/cuda/small_network.cuh"
#include "gipo/learner/cuda/small_update.h"
#include "gipo/learner/cuda/step_terms.cuh"

namespace gipo::cuda {
namespace {

constexpr int kSums = 3;
constexpr int kRoomDoubles = kSmallWarps * batch_sums::kCount;

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
  StepConstants constants;
  SmallNetwork network;  // of this block
};

template <class T>
__device__ inline void copy_words(T& to, const T& from) {
  static_assert(sizeof(T) % sizeof(int) == 0);
  for (int i = threadIdx.x; i < static_cast<int>(sizeof(T) / sizeof(int)); i += kSmallThreads) {
    reinterpret_cast<int*>(&to)[i] = reinterpret_cast<const int*>(&from)[i];
  }
}

template <ProductKind kKind>
__global__ void __launch_bounds__(kSmallThreads, 1) small_update_kernel(const __grid_constant__ SmallUpdate u) {
  auto& shared = *shared_memory<Common>();
  auto* const floats = shared_memory<float>();
  const LossOptions& o = u.loss_options;
  const StepArrays& s = u.step;
  const StepOptions& so = u.step_options;
  const SmallPlan& plan = u.plan;
  const int tid = threadIdx.x, warp = tid / 32, n = o.n;
  const bool policy = static_cast<int>(blockIdx.x) < plan.policy_blocks;
  copy_words(shared.network, policy ? plan.policy : plan.critic);
  copy_words(shared.state, *s.state);
  copy_words(shared.header, *s.header);
  __syncthreads();
  const SmallNetwork& net = shared.network;
  float* const memory = floats + plan.network;
  double* const room = shared.room;
  const int first = (policy ? blockIdx.x : blockIdx.x - plan.policy_blocks) * plan.rows_per_block;
  const int outputs = net.layer[net.layers - 1].out, ldo = small_stride(outputs);
  const float* const y = memory + net.layer[net.layers - 1].outputs;
  float* const other = floats + plan.average_outputs;

  // What of the rows only this block reads and writes lies in shared memory, at the places of the whole batch.
  LossArrays a = u.loss;
  const int per_array = plan.rows_per_block * o.dims;
  float* const of_rows = floats + plan.rows;
  const auto place = [&](int which) { return of_rows + which * per_array - first * o.dims; };
  auto* const heads = reinterpret_cast<Head*>(floats + plan.heads);
  a.heads = heads;
  a.action = place(0);
  a.behaviour = place(1);
  a.norm = place(2);
  a.head_entropy = place(3);
  a.average_norm = place(4);
  a.d_log_prob = place(5);

  // Forward, and the distributions of the rows. Weights are on their way before it is known how many rows there are.
  const bool looks_at_average = policy && u.arrays.average;
  if (o.ratios_due || !policy) {
    begin_weights(memory, net, looks_at_average ? u.arrays.average : policy ? u.arrays.policy : u.arrays.critic);
  }
  const bool stored = o.advantages == Advantages::kStored;
  const int limit = policy || stored ? n : shared.header.rows, end = min(first + plan.rows_per_block, limit);
  const bool works = first < limit && (o.ratios_due || !policy);
  if (works) {
    const auto copied = [] {
      end_group();
      wait_for_groups<0>();
      __syncthreads();
    };
    begin_matrix(memory + net.input, u.arrays.observation + static_cast<std::size_t>(first) * plan.observation_size,
                 plan.observation_size, end - first, net.layer[0].in, net.rows);
    if (policy) {
      for (int i = tid; i < (end - first) * o.dims; i += kSmallThreads) {
        begin_copy<4>(of_rows + i, u.loss.action + first * o.dims + i, 4);
        begin_copy<4>(of_rows + per_array + i, u.loss.behaviour + first * o.dims + i, 4);
      }
      for (int i = tid; i < o.dims; i += kSmallThreads) heads[i] = u.loss.heads[i];
    }
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
               *const value = reward + n, *const rho = value + n, *const trace = rho + n;
  for (int i = tid; i < n; i += kSmallThreads) {
    value[i] = __ldcg(u.arrays.values + i);
    if (stored) {
      advantage[i] = a.stored_advantage[i];
      target[i] = a.stored_target[i];
      continue;
    }
    reward[i] = a.reward[i];
    if (o.advantages == Advantages::kGae) continue;
    const VtraceWeights<float> weights = vtrace_weights(__ldcg(a.joint + i), o.limits);
    rho[i] = weights.rho;
    trace[i] = weights.trace;
  }
  __syncthreads();
  for (int w = tid; !stored && w < shared.header.stretches; w += kSmallThreads) {
    const CardStretch stretch = a.stretches[w];
    const float after = stretch.terminated ? 0.0f : __ldcg(u.arrays.values + n + w);
    const auto by = [&](auto next) {
      recursion(o, stretch.begin, stretch.length, {reward, value, rho, trace, advantage, target}, next);
    };
    if (o.advantages == Advantages::kGae) {
      by(GaeNext<float>{after});
    } else {
      by(VtraceNext<float>{after, after});
    }
  }
  __syncthreads();

  // Derivatives by the outputs, and by the parameters.
  float* const delta = memory + net.delta[0];
  double loss = 0;  // this thread's share
  const bool learns = works && first < n && (!policy || so.policy_due);
  if (learns) {
    for (int i = tid; i < net.rows * ldo; i += kSmallThreads) delta[i] = 0;
  }
  if (policy || blockIdx.x == gridDim.x - 1) {
    const Moments moments = moments_of(advantage, n, room);
    if (!policy) {
      const double target_squares = moments_of(target, n, room).squares;
      BatchSums sums = {};
      for (int i = tid; i < n; i += kSmallThreads) add_figures(a, o, i, advantage[i], target[i], value[i], sums);
      block_sums(sums, room);
      if (tid == 0) *const_cast<Figures*>(s.figures) = figures_of(o, sums, moments, target_squares);
    } else if (o.ratios_due) {
      const double factor = o.normalise ? normalising_factor(moments.deviation, moments.largest) : 0;
      loss = surrogate_losses(
          a, o, first, end,
          [&](int row) { return o.normalise ? normalised(advantage[row], moments.mean, factor) : advantage[row]; },
          [&](double most) { return second_moment_bound(a, o, most, room); });
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
  double sums[kSums] = {0, 0, loss};
  // Four threads to four parameters, each a quarter of the parts.
  constexpr int kQuarters = 4;
  const int quarter = tid % kQuarters;
  for (int four = first_four + tid / kQuarters; four - tid / kQuarters < last_four; four += kSmallThreads / kQuarters) {
    const int i = 4 * four;
    const bool of_policy = i < so.policy_size, there = four < last_four && (!of_policy || so.policy_due);
    const float* part = of_policy ? u.arrays.policy_parts + i : u.arrays.critic_parts + (i - so.policy_size);
    const std::size_t stride = of_policy ? u.arrays.policy_stride : u.arrays.critic_stride;
    const int parts = there ? of_policy ? plan.policy_blocks : plan.learning_critic_blocks : 0;
    float4 g = {0, 0, 0, 0};
#pragma unroll 8
    for (int p = quarter; p < parts; p += kQuarters) {
      const float4 v = __ldcg(reinterpret_cast<const float4*>(part + p * stride));
      g.x += v.x, g.y += v.y, g.z += v.z, g.w += v.w;
    }
#pragma unroll
    for (int step = 1; step < kQuarters; step *= 2) {
      g.x += __shfl_xor_sync(kAllLanes, g.x, step);
      g.y += __shfl_xor_sync(kAllLanes, g.y, step);
      g.z += __shfl_xor_sync(kAllLanes, g.z, step);
      g.w += __shfl_xor_sync(kAllLanes, g.w, step);
    }
    if (!there || quarter != 0) continue;
    *reinterpret_cast<float4*>(s.gradient + i) = g;
    const auto square = [](float x) { return static_cast<double>(x) * static_cast<double>(x); };
    const double squares = square(g.x) + square(g.y) + square(g.z) + square(g.w);
    sums[0] += of_policy ? squares : 0;
    sums[1] += of_policy ? 0 : squares;
  }
  block_sums(sums, room);
  if (tid < kSums) u.arrays.sums[kSums * blockIdx.x + tid] = tid == 0 ? sums[0] : tid == 1 ? sums[1] : sums[2];
  wait_for_blocks(u.arrays.arrived, [] {});

  // The step, decided by every block alike. Figures are on their way meanwhile.
  const bool reports = tid == 96;
  Figures f{};
  if (reports) {
    static_assert(sizeof f % sizeof(double) == 0);
#pragma unroll
    for (std::size_t k = 0; k < sizeof f / sizeof(double); ++k) {
      reinterpret_cast<double*>(&f)[k] = __ldcg(reinterpret_cast<const double*>(s.figures) + k);
    }
  }
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    sums[k] = tid < static_cast<int>(gridDim.x) ? __ldcg(u.arrays.sums + kSums * tid + k) : 0;
  }
  block_sums(sums, room);
  const double squares[2] = {sums[0], sums[1]};
  set_constants(shared.header, so, squares, shared.powers, shared.constants);
  if (reports) {
    f.policy_loss = so.loss_scale * sums[2];
    const bool skip = is_skipped(so, shared.state, squares, f);
    shared.constants.skip = skip;
    if (blockIdx.x == 0) report_step(s, so, shared.state, skip, f);
  }
  __syncthreads();
  if (shared.constants.skip) return;
  for (int four = first_four + tid; four < last_four; four += kSmallThreads) {
    step_four(s, so, shared.constants, 4 * four, __ldcg(reinterpret_cast<const float4*>(s.gradient + 4 * four)));
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
