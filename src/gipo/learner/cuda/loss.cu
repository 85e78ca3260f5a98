#include <algorithm>
#include <cstddef>

#include "gipo/kernels/reduce.cuh"
#include "gipo/learner/batch_figures.h"
#include "gipo/learner/cuda/launch.cuh"
#include "gipo/learner/cuda/loss.h"
#include "gipo/policy/distribution_terms.h"

namespace gipo::cuda {
namespace {

constexpr int kRowThreads = 256, kRowWarps = kRowThreads / 32;
constexpr int kMostLossThreads = 1024;
constexpr int kAtOnce = 8;  // loads that do not wait for each other

// A head of n choices by a whole warp; every lane gets the result. NaN is lost in the maximum, and not in the sum.
__device__ float log_sum_exp_of(const float* logits, const std::uint8_t* mask, int n) {
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

__device__ GaussianTerms<float> gaussian_of(const float* outputs, const float* log_std, const Head& head) {
  const float s = log_std[head.extra];
  return {outputs[head.output], s, std::exp(-s)};
}

// One warp for each row: its distribution, log-probs and ratios.
__global__ void __launch_bounds__(kRowThreads)
    evaluate_kernel(const __grid_constant__ LossArrays a, const __grid_constant__ LossOptions o) {
  const int row = blockIdx.x * kRowWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= o.n) return;
  const float* outputs = a.outputs + static_cast<std::size_t>(row) * o.outputs;
  const bool average = o.centred || o.proximal;
  const float* other = average ? a.average_outputs + static_cast<std::size_t>(row) * o.outputs : nullptr;
  const std::uint8_t* mask = a.mask ? a.mask + static_cast<std::size_t>(row) * o.mask_size : nullptr;
  float entropy = 0, kl = 0, joint = 0, ratio = 0, to_average = 0, to_policy = 0;
  const int parts = o.dims / o.ratios;  // of a ratio
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
    const bool begins = d % parts == 0;
    ratio = begins ? log_ratio : ratio + log_ratio;
    to_average = begins ? average_log_prob - behaviour : to_average + (average_log_prob - behaviour);
    to_policy = begins ? log_prob - average_log_prob : to_policy + (log_prob - average_log_prob);
    if ((d + 1) % parts != 0 || lane != 0) continue;
    const std::size_t j = static_cast<std::size_t>(row) * o.ratios + d / parts;
    a.ratio[j] = ratio;
    if (!o.centred) continue;
    a.trust[j] = to_policy;
    a.importance[j] = importance_weight(to_average, o.importance_max);
  }
  if (lane != 0) return;
  a.joint[row] = joint;
  a.entropy[row] = entropy;
  if (o.proximal) a.proximal[row] = kl;
}

// What the recursions read one step after the other, and what they make: in shared memory where there is room.
struct Steps {
  const float *reward, *value, *joint;  // [N]
  float *advantage, *target;            // [N]
};

// The recursion over one stretch, from its end.
__device__ void stretch_advantages(const LossArrays& a, const LossOptions& o, int which, const Steps& steps) {
  const CardStretch s = a.stretches[which];
  const float after = s.terminated ? 0.0f : a.values[o.n + which];
  // Some steps are read at once: what is written must not hold the next reads back.
  const auto each = [&](auto&& step) {
    for (int last = s.begin + s.length - 1; last >= s.begin; last -= kAtOnce) {
      float reward[kAtOnce], value[kAtOnce], joint[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int t = max(last - k, s.begin);
        reward[k] = steps.reward[t];
        value[k] = steps.value[t];
        joint[k] = steps.joint[t];
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (last - k < s.begin) break;
        const AdvantageTerm<float> term = step(reward[k], value[k], joint[k]);
        steps.advantage[last - k] = term.advantage;
        steps.target[last - k] = term.target;
      }
    }
  };
  if (o.advantages == Advantages::kGae) {
    GaeNext<float> next{after};
    each([&](float reward, float value, float) {
      return gae_step(reward, value, o.limits.gamma, o.limits.lambda, next);
    });
  } else {
    VtraceNext<float> next{after, after};
    each([&](float reward, float value, float joint) { return vtrace_step(reward, value, joint, o.limits, next); });
  }
}

// What AdamW and the average divide by, worked out while others are at the advantages.
__device__ void step_powers(const LossArrays& a, const LossOptions& o, int which) {
  const auto steps = static_cast<double>((which < 2 || which == 4 ? a.state->policy_steps : a.state->critic_steps) + 1);
  const double base = which == 4 ? o.average_decay : which % 2 == 0 ? o.beta1 : o.beta2;
  a.powers[which] = pow(base, which == 4 ? steps + 1 : steps);
}

// The surrogate of every ratio and d loss / d log pi: -m A, and that of KL(mu || pi) = E_mu[log mu - log pi]. Returns this
// thread's share of the sum of losses. `room`: shared, for sums.
__device__ double surrogate_losses(const LossArrays& a, const LossOptions& o, const float* advantages, double* room) {
  const int dims = o.ratios, parts = o.dims / dims, m = o.n * dims;
  const float* log_ratio = o.centred ? a.trust : a.ratio;
  const float inverse_size = 1.0f / static_cast<float>(o.n);
  double sum = 0;
  const auto each = [&](auto&& functor_at) {
    for (int j = threadIdx.x; j < m; j += blockDim.x) {
      const float advantage = advantages[j / dims];
      SurrogateTerm<float> term = surrogate_term(functor_at(j), log_ratio[j], advantage);
      if (o.centred) {
        term.multiplier *= a.importance[j];
        term.loss *= a.importance[j];
      }
      a.ratio_advantage[j] = advantage;
      a.multiplier[j] = term.multiplier;
      const float d = -(term.multiplier * advantage + o.kl_coef) * inverse_size;
      for (int k = 0; k < parts; ++k) a.d_log_prob[j * parts + k] = d;
      sum += term.loss;
    }
  };
  visit_surrogate(o.surrogate, [&](const auto& functor) {
    using Functor = std::remove_cvref_t<decltype(functor)>;
    if constexpr (std::is_same_v<Functor, SecondMoment>) {
      const SecondMomentTerm of_batch{largest_bound<float>([&](float bound) {
        double sums[2] = {};
        for (int j = threadIdx.x; j < m; j += blockDim.x) {
          const float size = std::fabs(clamped_log_ratio(log_ratio[j]));
          if (!(size <= bound)) continue;
          sums[0] += static_cast<double>(size) * static_cast<double>(size);
          sums[1] += 1;
        }
        block_sums(sums, room);
        return sums[0] <= functor.most * sums[1];
      })};
      each([&](int) { return of_batch; });
    } else if constexpr (requires { functor.at(0.0); }) {
      each([&](int j) { return functor.at(a.gap[j / dims]); });
    } else {
      each([&](int) { return functor; });
    }
  });
  return sum;
}

// One block: advantages, multipliers, and the figures that are sums over the batch. `stage`: whether the steps have room
// in shared memory.
__global__ void __launch_bounds__(kMostLossThreads)
    loss_kernel(const __grid_constant__ LossArrays a, const __grid_constant__ LossOptions o, bool stage) {
  extern __shared__ float staged[];
  __shared__ double room[33 * 10];
  const int n = o.n, tid = threadIdx.x, threads = blockDim.x;
  Steps steps{a.reward, a.values, a.joint, a.advantage, a.target};
  if (stage) {
    for (int i = tid; i < n; i += threads) {
      staged[i] = a.reward[i];
      staged[n + i] = a.values[i];
      staged[2 * n + i] = a.joint[i];
    }
    steps = {staged, staged + n, staged + 2 * n, staged + 3 * n, staged + 4 * n};
    __syncthreads();
  }
  if (const int lane = tid - (threads - 32); lane >= 0 && lane < 5) step_powers(a, o, lane);
  if (o.advantages == Advantages::kStored) {
    for (int i = tid; i < n; i += threads) {
      steps.advantage[i] = a.stored_advantage[i];
      steps.target[i] = a.stored_target[i];
    }
  } else {
    const int stretches = a.header->stretches;
    for (int w = tid; w < stretches; w += threads) stretch_advantages(a, o, w, steps);
  }
  __syncthreads();

  // Sums first, and what needs their means after.
  using namespace batch_sums;
  BatchSums sums = {};
  float largest = 0;
  for (int i = tid; i < n; i += threads) {
    const float advantage = steps.advantage[i], target = steps.target[i], value = steps.value[i];
    add_sample(sums, advantage, target, value);
    largest = larger_of(largest, std::fabs(advantage));
    a.d_value[i] = o.value_scale * (value - target);
    if (!o.ratios_due) continue;
    sums[kEntropy] += a.entropy[i];
    if (o.proximal) sums[kProximal] += a.proximal[i];
  }
  const int dims = o.ratios, m = n * dims;
  if (o.ratios_due && o.centred) {
    for (int j = tid; j < m; j += threads) {
      sums[kImportance] += a.importance[j];
      sums[kCut] += a.importance[j] >= o.importance_max ? 1.0 : 0.0;
    }
  }
  block_sums(sums, room);
  largest = block_max(largest, reinterpret_cast<float*>(room));
  const double mean = sums[kAdvantage] / n, target_mean = sums[kTarget] / n;
  double squares[2] = {};
  for (int i = tid; i < n; i += threads) {
    const double d = steps.advantage[i] - mean, t = steps.target[i] - target_mean;
    squares[0] += d * d;
    squares[1] += t * t;
  }
  block_sums(squares, room);
  const double deviation = std::sqrt(squares[0] / n);
  if (o.normalise) {
    const double factor = normalising_factor(deviation, largest);
    for (int i = tid; i < n; i += threads) steps.advantage[i] = normalised(steps.advantage[i], mean, factor);
  }
  __syncthreads();

  double losses[1] = {};
  if (o.ratios_due) {
    losses[0] = surrogate_losses(a, o, steps.advantage, room);
    block_sums(losses, room);
  }
  if (tid != 0) return;
  Figures f{};
  f.policy_loss = losses[0] / m * dims;  // dimensions are summed and samples averaged
  fill_figures(f, sums, deviation, squares[1], largest, n, m, o.ratios_due && o.centred);
  *a.figures = f;
}

// One warp for each row, kRowsPerBlock rows to a block: derivatives by the outputs and by the log standard deviations.
__global__ void __launch_bounds__(kRowThreads)
    output_gradient_kernel(const __grid_constant__ LossArrays a, const __grid_constant__ LossOptions o) {
  extern __shared__ float d_log_std[];  // [kRowsPerBlock, extras]
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const float inverse_size = 1.0f / static_cast<float>(o.n);
  const float entropy_coef = static_cast<float>(a.header->entropy_coef) * inverse_size,
              kl_coef = o.proximal_coef * inverse_size;
  for (int within_block = warp; within_block < kRowsPerBlock; within_block += kRowWarps) {
    const int row = blockIdx.x * kRowsPerBlock + within_block;
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
  for (int e = threadIdx.x; e < o.extras; e += kRowThreads) {
    float sum = 0;
    for (int r = 0; r < kRowsPerBlock; ++r) sum += d_log_std[r * o.extras + e];
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
  const float4 x = log_ratio[i], y = advantage[i];
  multiplier[i] = {surrogate_term(functor, x.x, y.x).multiplier, surrogate_term(functor, x.y, y.y).multiplier,
                   surrogate_term(functor, x.z, y.z).multiplier, surrogate_term(functor, x.w, y.w).multiplier};
}

}  // namespace

void prepare_loss() {
  for (const auto kernel :
       {reinterpret_cast<const void*>(loss_kernel), reinterpret_cast<const void*>(output_gradient_kernel)}) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostShared)),
          "shared memory");
  }
}

void evaluate_rows(const LossArrays& arrays, const LossOptions& options, cudaStream_t stream) {
  launch(evaluate_kernel, (options.n + kRowWarps - 1) / kRowWarps, kRowThreads, 0, stream, "the distributions", arrays,
         options);
}

void compute_loss(const LossArrays& arrays, const LossOptions& options, cudaStream_t stream) {
  const std::size_t bytes = 5 * sizeof(float) * static_cast<std::size_t>(options.n);
  const bool stage = bytes <= kMostShared;
  // As many threads as there is work for: sums over a block cost by its warps.
  const int threads = std::clamp((options.n + 31) / 32 * 32, 128, kMostLossThreads);
  launch(loss_kernel, 1, threads, stage ? bytes : 0, stream, "the loss", arrays, options, stage);
}

void output_gradient(const LossArrays& arrays, const LossOptions& options, cudaStream_t stream) {
  launch(output_gradient_kernel, row_blocks(options.n), kRowThreads, log_std_bytes(options), stream,
         "the derivatives by outputs", arrays, options);
}

void surrogate_over(const SurrogateChoice& choice, const float* log_ratio, const float* advantage, float* multiplier,
                    std::size_t size, cudaStream_t stream) {
  visit_surrogate(choice, [&](const auto& functor) {
    using Functor = std::remove_cvref_t<decltype(functor)>;
    if constexpr (std::is_same_v<Functor, GipoTerm<GaussianWeight, PullBack::kDamped>> ||
                  std::is_same_v<Functor, ClippedRatioTerm> || std::is_same_v<Functor, SapoTerm>) {
      surrogate_kernel<<<static_cast<unsigned>((size / 4 + 255) / 256), 256, 0, stream>>>(
          functor, reinterpret_cast<const float4*>(log_ratio), reinterpret_cast<const float4*>(advantage),
          reinterpret_cast<float4*>(multiplier), size / 4);
    }
  });
  check(cudaGetLastError(), "the surrogate");
}

}  // namespace gipo::cuda
