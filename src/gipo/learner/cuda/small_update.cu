#include "gipo/learner/cuda/launch.cuh"
#include "gipo/learner/cuda/loss_rows.cuh"
#include "gipo/learner/cuda/small_network.cuh"
#include "gipo/learner/cuda/small_update.h"
#include "gipo/learner/cuda/step_terms.cuh"

namespace gipo::cuda {
namespace {

constexpr int kSums = 3;
constexpr int kMostSums = batch_sums::kCount;

struct SmallUpdate {
  SmallPlan plan;
  SmallArrays arrays;
  LossArrays loss;
  LossOptions loss_options;
  StepArrays step;
  StepOptions step_options;
};

// First in shared memory.
struct Common {
  double sums[kSmallWarps * kMostSums];
  double powers[5];
  StepState state;
  BatchHeader header;
  Figures figures;
  StepReport report;
  StepConstants constants;  // but for the norms
  Excess<float> excess[kSmallWarps];
  SmallNetwork network;  // of this block
};

template <class T>
__device__ inline void copy_words(T& to, const T& from, int thread, int threads) {
  static_assert(sizeof(T) % sizeof(int) == 0);
#pragma unroll 1
  for (int i = thread; i < static_cast<int>(sizeof(T) / sizeof(int)); i += threads) {
    reinterpret_cast<int*>(&to)[i] = reinterpret_cast<const int*>(&from)[i];
  }
}
template <class T>
__device__ inline void begin_words(T& to, const T& from) {
  static_assert(sizeof(T) % sizeof(float) == 0);
  const int i = threadIdx.x;
  if (i >= static_cast<int>(sizeof(T) / sizeof(float))) return;
  begin_copy<4>(reinterpret_cast<float*>(&to) + i, reinterpret_cast<const float*>(&from) + i, 4);
}

// Where all blocks wait for each other, and see what the others wrote. Each adds one, and the first one as much more as
// makes the highest bit change when all have: nothing has to be reset. Whoever has not added yet knows that bit.
class Meeting {
 public:
  __device__ explicit Meeting(unsigned* arrived)
      : arrived_(arrived), before_(threadIdx.x == 0 ? load_acquire(arrived) : 0) {}

  // `meanwhile`: work of all warps but the first.
  template <class F>
  __device__ void wait(F&& meanwhile) {
    __syncthreads();
    if (threadIdx.x == 0) {
      add_release(arrived_, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u);
      while (((load_acquire(arrived_) ^ before_) & 0x80000000u) == 0) {
      }
      before_ ^= 0x80000000u;
    } else if (threadIdx.x >= 32) {
      meanwhile();
    }
    __syncthreads();
  }

 private:
  unsigned* arrived_;
  unsigned before_;
};

// The sums of some values over the block, each by one thread, which alone gets it.
template <int kCount>
__device__ inline double sum_of_block(const double (&values)[kCount], double* room) {
  const int tid = threadIdx.x;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const double sum = warp_sum(values[k]);
    if (tid % 32 == 0) room[tid / 32 * kCount + k] = sum;
  }
  __syncthreads();
  double sum = 0;
  if (tid < kCount) {
#pragma unroll
    for (int w = 0; w < kSmallWarps; ++w) sum += room[w * kCount + tid];
  }
  return sum;
}

// As moments_of, by one warp.
__device__ inline Moments moments_by_warp(const float* values, int n) {
  const double around = values[0];
  double sums[2] = {};
  float largest = 0;
#pragma unroll 4
  for (int i = threadIdx.x % 32; i < n; i += 32) {
    const double d = values[i] - around;
    sums[0] += d;
    sums[1] += d * d;
    largest = larger_of(largest, std::fabs(values[i]));
  }
#pragma unroll
  for (double& sum : sums) sum = warp_sum(sum);
  return moments_of(around, sums, warp_max(largest), n);
}

// What the recursions read and make, for the steps of the whole batch.
struct BatchSteps {
  float *advantage, *target, *reward, *value, *next_value;
  int* after;  // 0: the next step; -1: nothing, or the value behind the stretch of this number, counted from 1
};

// Advantages and targets. Each thread has some steps in a row, and threads hand each other what theirs come to.
__device__ inline void recursions(const LossOptions& o, const BatchSteps& steps, Excess<float>* of_warps) {
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int own = (o.n + kSmallThreads - 1) / kSmallThreads, first = min(tid * own, o.n), end = min(first + own, o.n);
  // advantage and target have the parts of each step's excess so far.
  const auto excess_at = [&](int i) { return Excess<float>{steps.advantage[i], steps.target[i]}; };
  Excess<float> all{0, 1};
#pragma unroll 1
  for (int i = end - 1; i >= first; --i) all = joined(excess_at(i), all);
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const Excess<float> after{__shfl_down_sync(kAllLanes, all.add, step), __shfl_down_sync(kAllLanes, all.keep, step)};
    if (lane + step < 32) all = joined(all, after);
  }
  const Excess<float> after{__shfl_down_sync(kAllLanes, all.add, 1), __shfl_down_sync(kAllLanes, all.keep, 1)};
  if (lane == 0) of_warps[warp] = all;
  __syncthreads();
  Excess<float> behind{0, 0};
#pragma unroll
  for (int w = kSmallWarps - 1; w > 0; --w) {
    if (w > warp) behind = joined(of_warps[w], behind);
  }
  float excess = (lane < 31 ? joined(after, behind) : behind).add;
#pragma unroll 1
  for (int i = end - 1; i >= first; --i) {
    const float next = steps.after[i] == 0 ? excess : 0.0f, value = steps.value[i];
    excess = joined(excess_at(i), {next, 0.0f}).add;
    steps.target[i] = value + excess;
    steps.advantage[i] = o.advantages == Advantages::kGae
                             ? excess
                             : vtrace_advantage(steps.reward[i], value, steps.next_value[i] + next, o.limits);
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
  const bool stored = o.advantages == Advantages::kStored;
  Meeting meeting(u.arrays.arrived);
  const int rows_there = policy || stored ? n : s.header->rows;
  begin_words(shared.state, *s.state);
  begin_words(shared.header, *s.header);
  copy_words(shared.network, policy ? plan.policy : plan.critic, tid, kSmallThreads);
  __syncthreads();
  const SmallNetwork& net = shared.network;
  float* const memory = floats + plan.network;
  const int first = (policy ? blockIdx.x : blockIdx.x - plan.policy_blocks) * plan.rows_per_block;
  const int outputs = net.layer[net.layers - 1].out, ldo = small_stride(outputs);
  const float* const y = memory + net.layer[net.layers - 1].outputs;
  float* const other = floats + plan.average_outputs;

  // What of the rows only this block reads lies in shared memory, at the places of the whole batch.
  LossArrays a = u.loss;
  const int per_array = plan.rows_per_block * o.dims;
  float* const of_rows = floats + plan.rows;
  const auto place = [&](int which, int dims) { return of_rows + which * per_array - first * dims; };
  auto* const heads = reinterpret_cast<Head*>(floats + plan.heads);
  a.heads = heads;
  a.action = place(0, o.dims);
  a.behaviour = place(1, o.dims);
  a.norm = place(2, o.dims);
  a.head_entropy = place(3, o.dims);
  a.average_norm = place(4, o.dims);
  a.d_log_prob = place(5, o.dims);
  a.ratio = place(6, o.ratios);
  a.trust = place(7, o.ratios);
  a.importance = place(8, o.ratios);

  // Forward, and the distributions of the rows. Weights are on their way before it is known how many rows there are.
  const bool looks_at_average = policy && u.arrays.average, forwards = o.ratios_due || !policy;
  const auto copied = [] {
    end_group();
    wait_for_groups<0>();
    __syncthreads();
  };
  if (!forwards) copied();
  bool works = false;
  int end = first;
#pragma unroll 1
  for (int pass = looks_at_average ? 0 : 1; forwards && pass < 2; ++pass) {
    begin_weights(memory, net, pass == 0 ? u.arrays.average : policy ? u.arrays.policy : u.arrays.critic);
    if (!works) {
      end = min(first + plan.rows_per_block, rows_there);
      works = first < rows_there;
      begin_matrix(memory + net.input, u.arrays.observation + static_cast<std::size_t>(first) * plan.observation_size,
                   plan.observation_size, end - first, net.layer[0].in, net.rows);
      if (policy) {
        for (int i = tid; i < (end - first) * o.dims; i += kSmallThreads) {
          begin_copy<4>(of_rows + i, u.loss.action + first * o.dims + i, 4);
          begin_copy<4>(of_rows + per_array + i, u.loss.behaviour + first * o.dims + i, 4);
        }
        for (int i = tid; i < 4 * o.dims; i += kSmallThreads) {
          begin_copy<4>(reinterpret_cast<float*>(heads) + i, reinterpret_cast<const float*>(u.loss.heads) + i, 4);
        }
      }
    }
    copied();
    if (!works) break;
    forward<kKind>(memory, net);
    if (pass == 0) {
      for (int i = tid; i < net.rows * ldo; i += kSmallThreads) other[i] = y[i];
    }
  }
  if (tid >= kSmallThreads - 5) {
    const int which = kSmallThreads - 1 - tid;
    shared.powers[which] = step_power(o, shared.state, which);
  }
  if (works && !policy) {
    for (int row = first + tid; row < end; row += kSmallThreads) u.arrays.values[row] = y[(row - first) * ldo];
  } else if (works && plan.short_rows) {
    const int row = first + tid;
    if (row < end) evaluate_row<1>(a, o, row, y + tid * ldo, other + tid * ldo);
  } else if (works) {
#pragma unroll 1
    for (int row = first + warp; row < end; row += kSmallWarps) {
      evaluate_row<32>(a, o, row, y + (row - first) * ldo, other + (row - first) * ldo);
    }
  }
  if (works && policy) {
    __syncthreads();
    for (int j = first * o.ratios + tid; j < end * o.ratios; j += kSmallThreads) {
      u.loss.ratio[j] = a.ratio[j];
      if (!o.centred) continue;
      u.loss.trust[j] = a.trust[j];
      u.loss.importance[j] = a.importance[j];
    }
  }
  // While the others' ratios and values are awaited: where each step goes on.
  float* const batch = floats + plan.steps;
  const BatchSteps steps{batch,         batch + n,     batch + 2 * n,
                         batch + 3 * n, batch + 4 * n, reinterpret_cast<int*>(batch + 5 * n)};
  for (int i = tid; i < n; i += kSmallThreads) steps.after[i] = 0;
  meeting.wait([&] {
    constexpr int kOthers = kSmallThreads - 32;
    const int thread = tid - 32;
    for (int w = thread; !stored && w < shared.header.stretches; w += kOthers) {
      const CardStretch stretch = a.stretches[w];
      steps.after[stretch.begin + stretch.length - 1] = stretch.terminated ? -1 : w + 1;
    }
    for (int i = thread; !stored && i < n; i += kOthers) steps.reward[i] = a.reward[i];
  });

  // Advantages of the whole batch, by every block alike.
#pragma unroll 4
  for (int i = tid; i < n; i += kSmallThreads) {
    const float value = __ldcg(u.arrays.values + i);
    steps.value[i] = value;
    if (stored) {
      steps.advantage[i] = a.stored_advantage[i];
      steps.target[i] = a.stored_target[i];
      continue;
    }
    const int after = steps.after[i];
    const float next = after < 0 ? 0.0f : __ldcg(u.arrays.values + (after == 0 ? i + 1 : n + after - 1));
    const Excess<float> excess =
        o.advantages == Advantages::kGae
            ? gae_excess(steps.reward[i], value, next, o.limits.gamma, o.limits.lambda)
            : vtrace_excess(steps.reward[i], value, next, vtrace_weights(__ldcg(a.joint + i), o.limits), o.limits);
    steps.next_value[i] = next;
    steps.advantage[i] = excess.add;
    steps.target[i] = after == 0 ? excess.keep : 0;
  }
  __syncthreads();
  if (!stored) {
    recursions(o, steps, shared.excess);
    __syncthreads();
  }

  // Derivatives by the outputs, and by the parameters.
  float* const delta = memory + net.layer[net.layers - 1].delta;
  double loss = 0;  // this thread's share
  const bool learns = works && first < n && (!policy || so.policy_due);
  if (learns) {
    for (int i = tid; i < net.rows * ldo; i += kSmallThreads) delta[i] = 0;
  }
  if (policy && o.ratios_due) {
    // By the warps whose threads have rows.
    const Moments moments =
        o.normalise && 32 * warp < (end - first) * o.ratios ? moments_by_warp(steps.advantage, n) : Moments{};
    const double factor = o.normalise ? normalising_factor(moments.deviation, moments.largest) : 0;
    loss = surrogate_losses(
        a, o, first, end,
        [&](int row) {
          return o.normalise ? normalised(steps.advantage[row], moments.mean, factor) : steps.advantage[row];
        },
        [&](double most) { return second_moment_bound(u.loss, o, most, shared.sums); });
  } else if (blockIdx.x == gridDim.x - 1) {
    const Moments moments = moments_by_warp(steps.advantage, n);
    const double target_squares = moments_by_warp(steps.target, n).squares;
    BatchSums sums = {};
    for (int i = tid; i < n; i += kSmallThreads) {
      add_figures(u.loss, o, i, steps.advantage[i], steps.target[i], steps.value[i], sums);
    }
    block_sums(sums, shared.sums);
    if (tid == 0) *const_cast<Figures*>(s.figures) = figures_of(o, sums, moments, target_squares);
  }
  __syncthreads();
  if (learns) {
    float* const gradient = policy ? u.arrays.policy_parts + blockIdx.x * u.arrays.policy_stride
                                   : u.arrays.critic_parts + (blockIdx.x - plan.policy_blocks) * u.arrays.critic_stride;
    if (policy) {
      auto* const d_log_std = batch;  // [rows, extras]; nobody reads the batch's steps any more
      const auto derive = [&](auto lanes, int within) {
        output_gradient_row<decltype(lanes)::value>(a, o, first + within, y + within * ldo, other + within * ldo,
                                                    delta + within * ldo, d_log_std + within * o.extras);
      };
      if (plan.short_rows) {
        if (tid < end - first) derive(std::integral_constant<int, 1>(), tid);
      } else {
#pragma unroll 1
        for (int row = warp; row < end - first; row += kSmallWarps) derive(std::integral_constant<int, 32>(), row);
      }
      __syncthreads();
      for (int e = tid; e < o.extras; e += kSmallThreads) {
        float sum = 0;
        for (int r = 0; r < end - first; ++r) sum += d_log_std[r * o.extras + e];
        gradient[so.network_size + e] = sum;
      }
    } else {
      for (int row = first + tid; row < min(end, n); row += kSmallThreads) {
        delta[(row - first) * ldo] = o.value_scale * (steps.value[row] - steps.target[row]);
      }
      __syncthreads();
    }
    backward<kKind>(memory, net, gradient);
  }
  meeting.wait([&] {
    if (tid == 64) {
      shared.constants.policy = constants_of(so, shared.header.policy_rate, 0, shared.powers[0], shared.powers[1]);
    } else if (tid == 96) {
      shared.constants.critic = constants_of(so, shared.header.value_rate, 0, shared.powers[2], shared.powers[3]);
    } else if (tid == 128) {
      shared.constants.average_step = static_cast<float>(average_step(so.average_decay, shared.powers[4]));
    }
  });

  // Sums of the parts, each block its share of the parameters, always in the same order. Two threads to four parameters,
  // each with every other part.
  const int fours = so.size / 4, share = (fours + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int first_four = min(static_cast<int>(blockIdx.x) * share, fours), last_four = min(first_four + share, fours);
  constexpr int kPairs = kSmallThreads / 2;
  const int half = tid % 2, own_four = first_four + tid / 2;
  const auto is_due = [&](int four) { return four < last_four && (4 * four >= so.policy_size || so.policy_due); };
  double sums[kSums] = {0, 0, loss};
  float4 own_gradient = {0, 0, 0, 0};
#pragma unroll 1
  for (int four = own_four; four - tid / 2 < last_four; four += kPairs) {
    const int i = 4 * four;
    const bool of_policy = i < so.policy_size, there = is_due(four);
    const float* part = of_policy ? u.arrays.policy_parts + i : u.arrays.critic_parts + (i - so.policy_size);
    const std::size_t stride = of_policy ? u.arrays.policy_stride : u.arrays.critic_stride;
    const int parts = there ? of_policy ? plan.policy_blocks : plan.learning_critic_blocks : 0;
    float4 g = {0, 0, 0, 0};
#pragma unroll 8
    for (int p = half; p < parts; p += 2) {
      const float4 v = __ldcg(reinterpret_cast<const float4*>(part + p * stride));
      g.x += v.x, g.y += v.y, g.z += v.z, g.w += v.w;
    }
    g.x += __shfl_xor_sync(kAllLanes, g.x, 1);
    g.y += __shfl_xor_sync(kAllLanes, g.y, 1);
    g.z += __shfl_xor_sync(kAllLanes, g.z, 1);
    g.w += __shfl_xor_sync(kAllLanes, g.w, 1);
    if (!there || half != 0) continue;
    *reinterpret_cast<float4*>(s.gradient + i) = g;
    if (four == own_four) own_gradient = g;
    const auto square = [](float x) { return static_cast<double>(x) * static_cast<double>(x); };
    const double squares = square(g.x) + square(g.y) + square(g.z) + square(g.w);
    sums[0] += of_policy ? squares : 0;
    sums[1] += of_policy ? 0 : squares;
  }
  // What the step reads is on its way while norms are awaited.
  const bool steps_own = half == 0 && is_due(own_four);
  FourParameters own{};
  if (steps_own) own = four_parameters(s, so, 4 * own_four);
  const double sum = sum_of_block(sums, shared.sums);
  if (tid < kSums) u.arrays.sums[kSums * blockIdx.x + tid] = sum;
  meeting.wait([&] {
    if (warp == 1) copy_words(shared.figures, *s.figures, tid % 32, 32);
  });

  // The step, decided by every warp alike.
#pragma unroll
  for (double& x : sums) x = 0;
  for (int block = tid % 32; block < static_cast<int>(gridDim.x); block += 32) {
#pragma unroll
    for (int k = 0; k < kSums; ++k) sums[k] += __ldcg(u.arrays.sums + kSums * block + k);
  }
#pragma unroll
  for (double& x : sums) x = warp_sum(x);
  const double squares[2] = {sums[0], sums[1]};
  Figures f = shared.figures;
  f.policy_loss = so.loss_scale * sums[2];
  const bool skip = is_skipped(so, shared.state, squares, f);
  if (!skip) {
    const auto step = [&](int four, const float4& g, const FourParameters& before) {
      const bool of_policy = 4 * four < so.policy_size;
      AdamWStep<float> c = of_policy ? shared.constants.policy : shared.constants.critic;
      c.scale = static_cast<float>(clip_scale(so, of_policy ? f.policy_norm : f.value_norm));
      step_four(s, so, c, shared.constants.average_step, 4 * four, g, before);
    };
#pragma unroll 1
    for (int four = own_four; half == 0 && is_due(four); four += kPairs) {
      if (four == own_four) {
        step(four, own_gradient, own);
      } else {
        step(four, __ldcg(reinterpret_cast<const float4*>(s.gradient + 4 * four)), four_parameters(s, so, 4 * four));
      }
    }
  }
  // The report goes to the host in a few wide stores.
  if (blockIdx.x != 0 || warp != kSmallWarps - 1) return;
  __syncwarp();
  if (tid % 32 == 0) {
    StepArrays here = s;
    here.state = &shared.report.state;
    here.report = &shared.report;
    report_step(here, so, shared.state, skip, f);
  }
  __syncwarp();
  copy_words(*s.state, shared.report.state, tid % 32, 32);
  copy_words(*s.report, shared.report, tid % 32, 32);
}

}  // namespace

std::size_t small_update_common_bytes() { return (sizeof(Common) + 15) / 16 * 16; }

void prepare_small_update(ProductKind kind, std::size_t shared) {
  with_small_kind(kind, [&](auto known) {
    check(cudaFuncSetAttribute(small_update_kernel<known.value>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared)),
          "shared memory");
  });
}

void run_small_update(const SmallPlan& plan, const SmallArrays& arrays, const LossArrays& loss,
                      const LossOptions& loss_options, const StepArrays& step, const StepOptions& step_options,
                      ProductKind kind, cudaStream_t stream) {
  with_small_kind(kind, [&](auto known) {
    launch_as(LaunchKind::kTogether, small_update_kernel<known.value>, plan.policy_blocks + plan.critic_blocks,
              kSmallThreads, plan.shared, stream, "an update",
              SmallUpdate{plan, arrays, loss, loss_options, step, step_options});
  });
}

}  // namespace gipo::cuda
