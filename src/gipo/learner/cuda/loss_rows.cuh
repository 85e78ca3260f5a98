// What an update computes between the networks' outputs and the derivatives by them: for one row, by a warp; for one
// stretch, by a thread; for the batch, by a block.
#pragma once

#include <cmath>
#include <type_traits>

#include "gipo/kernels/reduce.cuh"
#include "gipo/learner/batch_figures.h"
#include "gipo/learner/cuda/loss.h"
#include "gipo/policy/distribution_terms.h"

namespace gipo::cuda {

inline constexpr int kAtOnce = 8;  // loads that do not wait for each other

// A row is computed by a warp, or by one thread, where a warp would mostly wait for itself.
template <int kLanes>
__device__ inline float sum_of_lanes(float v) {
  static_assert(kLanes == 1 || kLanes == 32);
  return kLanes == 32 ? warp_sum(v) : v;
}
template <int kLanes>
inline constexpr int kLoadsAtOnce = kLanes == 32 ? kAtOnce : 2;

// A head of n choices by so many lanes; each gets the result. NaN is lost in the maximum, and not in the sum.
template <int kLanes>
__device__ inline float log_sum_exp_of(const float* logits, const std::uint8_t* mask, int n) {
  const int lane = threadIdx.x % kLanes;
  float top = -HUGE_VALF;
#pragma unroll kLoadsAtOnce < kLanes>
  for (int k = lane; k < n; k += kLanes) {
    if (valid_choice(mask, k)) top = larger_of(top, logits[k]);
  }
  if constexpr (kLanes == 32) top = warp_max(top);
  float sum = 0;
#pragma unroll kLoadsAtOnce < kLanes>
  for (int k = lane; k < n; k += kLanes) {
    if (valid_choice(mask, k)) sum += std::exp(logits[k] - top);
  }
  return top + std::log(sum_of_lanes<kLanes>(sum));
}

__device__ inline GaussianTerms<float> gaussian_of(const float* outputs, const float* log_std, const Head& head) {
  const float s = log_std[head.extra];
  return {outputs[head.output], s, std::exp(-s)};
}

// What a dimension of an action gives for the ratios of its row.
struct HeadTerms {
  float log_prob, average_log_prob, entropy, kl;
};

// The outputs of a row of networks, and its mask or null. `other`: of the average, where it is looked at.
struct RowOutputs {
  const float *policy, *other;
  const std::uint8_t* mask;
};
__device__ inline RowOutputs row_outputs(const LossArrays& a, const LossOptions& o, int row, const float* policy,
                                         const float* other) {
  return {policy, other, a.mask ? a.mask + static_cast<std::size_t>(row) * o.mask_size : nullptr};
}

// One dimension of one row: its distribution and log-probs. All lanes get the result.
template <int kLanes>
__device__ inline HeadTerms evaluate_head(const LossArrays& a, const LossOptions& o, int row, int d,
                                          const RowOutputs& of) {
  const bool average = o.centred || o.proximal;
  const Head head = a.heads[d];
  const std::size_t at = static_cast<std::size_t>(row) * o.dims + d;
  const float action = a.action[at];
  HeadTerms terms = {};
  if (head.choices == 0) {
    const GaussianTerms<float> pi = gaussian_of(of.policy, a.log_std, head);
    terms.log_prob = gaussian_log_prob(pi, action);
    if (average) {
      const GaussianTerms<float> q = gaussian_of(of.other, a.average_log_std, head);
      terms.average_log_prob = gaussian_log_prob(q, action);
      if (o.proximal) terms.kl = gaussian_kl(q, pi);
    }
    return terms;
  }
  const int lane = threadIdx.x % kLanes;
  const std::uint8_t* valid = of.mask ? of.mask + head.mask : nullptr;
  const float* logits = of.policy + head.output;
  const float* average_logits = average ? of.other + head.output : nullptr;
  const float norm = log_sum_exp_of<kLanes>(logits, valid, head.choices);
  const float average_norm = average ? log_sum_exp_of<kLanes>(average_logits, valid, head.choices) : 0;
  float sum = 0, divergence = 0;
#pragma unroll kLoadsAtOnce < kLanes>
  for (int k = lane; k < head.choices; k += kLanes) {
    const ChoiceTerms<float> c = choice_terms(logits[k], valid_choice(valid, k), norm);
    sum -= c.p * c.log_p;
    if (!o.proximal) continue;
    const ChoiceTerms<float> q = choice_terms(average_logits[k], valid_choice(valid, k), average_norm);
    divergence = add_categorical_kl(divergence, &q.p, &q.log_p, &c.log_p, 1);
  }
  terms.entropy = sum_of_lanes<kLanes>(sum);
  if (o.proximal) terms.kl = sum_of_lanes<kLanes>(divergence);
  const int chosen = static_cast<int>(action);
  terms.log_prob = choice_terms(logits[chosen], valid_choice(valid, chosen), norm).log_p;
  if (average) {
    terms.average_log_prob = choice_terms(average_logits[chosen], valid_choice(valid, chosen), average_norm).log_p;
  }
  if (lane == 0) {
    a.norm[at] = norm;
    a.head_entropy[at] = terms.entropy;
    if (average) a.average_norm[at] = average_norm;
  }
  return terms;
}

// The ratios of a row from its dimensions, one after the other: terms_of(d). writes: whether this thread does.
template <class Terms>
__device__ inline void combine_heads(const LossArrays& a, const LossOptions& o, int row, bool writes,
                                     Terms&& terms_of) {
  float entropy = 0, kl = 0, joint = 0, ratio = 0, to_average = 0, to_policy = 0;
  const int parts = o.dims / o.ratios;  // of a ratio
  for (int e = 0; e < o.extras; ++e) entropy += gaussian_entropy(a.log_std[e]);
  for (int d = 0; d < o.dims; ++d) {
    const HeadTerms terms = terms_of(d);
    entropy += terms.entropy;
    kl += terms.kl;
    const float behaviour = a.behaviour[static_cast<std::size_t>(row) * o.dims + d];
    const float log_ratio = terms.log_prob - behaviour, of_average = terms.average_log_prob - behaviour,
                trust = terms.log_prob - terms.average_log_prob;
    joint += log_ratio;
    const bool begins = d % parts == 0;
    ratio = begins ? log_ratio : ratio + log_ratio;
    to_average = begins ? of_average : to_average + of_average;
    to_policy = begins ? trust : to_policy + trust;
    if ((d + 1) % parts != 0 || !writes) continue;
    const std::size_t j = static_cast<std::size_t>(row) * o.ratios + d / parts;
    a.ratio[j] = ratio;
    if (!o.centred) continue;
    a.trust[j] = to_policy;
    a.importance[j] = importance_weight(to_average, o.importance_max);
  }
  if (!writes) return;
  a.joint[row] = joint;
  a.entropy[row] = entropy;
  if (o.proximal) a.proximal[row] = kl;
}

// One row, by a warp or by a thread: its distribution, log-probs and ratios.
template <int kLanes = 32>
__device__ inline void evaluate_row(const LossArrays& a, const LossOptions& o, int row, const float* outputs,
                                    const float* other) {
  const RowOutputs of = row_outputs(a, o, row, outputs, other);
  combine_heads(a, o, row, threadIdx.x % kLanes == 0, [&](int d) { return evaluate_head<kLanes>(a, o, row, d, of); });
}

// What the recursions read one step after the other, in shared memory, and what they make. rho and trace: as V-trace has
// them, which GAE does not read.
struct Steps {
  const float *reward, *value, *rho, *trace;
  float *advantage, *target;
};

// The recursion over `length` steps from `begin` on, from their end. `next`: of the step after, and then of the first.
template <class Next>
__device__ inline void recursion(const LossOptions& o, int begin, int length, const Steps& steps, Next& next) {
  // Some steps are read at once.
  const auto take = [&](float reward, float value, float rho, float trace, int t) {
    AdvantageTerm<float> term;
    if constexpr (std::is_same_v<Next, GaeNext<float>>) {
      term = gae_step(reward, value, o.limits.gamma, o.limits.lambda, next);
    } else {
      term = vtrace_step(reward, value, VtraceWeights<float>{rho, trace}, o.limits, next);
    }
    steps.advantage[t] = term.advantage;
    steps.target[t] = term.target;
  };
  int last = begin + length - 1;
  for (; last - kAtOnce + 1 >= begin; last -= kAtOnce) {
    float reward[kAtOnce], value[kAtOnce], rho[kAtOnce], trace[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      reward[k] = steps.reward[last - k];
      value[k] = steps.value[last - k];
      rho[k] = steps.rho[last - k];
      trace[k] = steps.trace[last - k];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) take(reward[k], value[k], rho[k], trace[k], last - k);
  }
  for (; last >= begin; --last) {
    take(steps.reward[last], steps.value[last], steps.rho[last], steps.trace[last], last);
  }
}

// What AdamW and the average divide by.
__device__ inline double step_power(const LossOptions& o, const StepState& state, int which) {
  const auto steps = static_cast<double>((which < 2 || which == 4 ? state.policy_steps : state.critic_steps) + 1);
  const double base = which == 4 ? o.average_decay : which % 2 == 0 ? o.beta1 : o.beta2;
  return pow(base, which == 4 ? steps + 1 : steps);
}

// Mean and deviation of numbers by a block, around the first of them, so that equal numbers have none.
struct Moments {
  double mean, deviation, squares;
  float largest;
};
__device__ inline Moments moments_of(double around, const double (&sums)[2], float largest, int n) {
  const double share = 1.0 / n;  // which waits for none of the sums
  const double shift = sums[0] * share, found = sums[1] - sums[0] * shift, squares = found < 0 ? 0 : found;
  return {around + shift, std::sqrt(squares * share), squares, largest};
}
__device__ inline Moments moments_of(double around, double (&sums)[2], float largest, int n, double* room) {
  block_sums(sums, room);
  return moments_of(around, sums, block_max(largest, reinterpret_cast<float*>(room)), n);
}
__device__ inline Moments moments_of(const float* values, int n, double* room) {
  const double around = values[0];
  double sums[2] = {};
  float largest = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    const double d = values[i] - around;
    sums[0] += d;
    sums[1] += d * d;
    largest = larger_of(largest, std::fabs(values[i]));
  }
  return moments_of(around, sums, largest, n, room);
}

// Adds what a sample has to the sums of its batch.
__device__ inline void add_figures(const LossArrays& a, const LossOptions& o, int row, float advantage, float target,
                                   float value, BatchSums& sums) {
  using namespace batch_sums;
  add_sample(sums, advantage, target, value);
  if (!o.ratios_due) return;
  sums[kEntropy] += __ldcg(a.entropy + row);
  if (o.proximal) sums[kProximal] += __ldcg(a.proximal + row);
  if (!o.centred) return;
  const int dims = o.ratios;
  for (int j = row * dims; j < (row + 1) * dims; ++j) {
    const float weight = __ldcg(a.importance + j);
    sums[kImportance] += weight;
    sums[kCut] += weight >= o.importance_max ? 1.0 : 0.0;
  }
}
// All figures but for the policy's loss and the norms.
__device__ inline Figures figures_of(const LossOptions& o, const BatchSums& sums, const Moments& advantages,
                                     double target_squares) {
  Figures f{};
  fill_figures(f, sums, advantages.deviation, target_squares, advantages.largest, o.n, o.n * o.ratios,
               o.ratios_due && o.centred);
  return f;
}

// Of a surrogate that looks at the whole batch: its bound, by a block.
__device__ inline float second_moment_bound(const LossArrays& a, const LossOptions& o, double most, double* room) {
  const float* log_ratio = o.centred ? a.trust : a.ratio;
  const int m = o.n * o.ratios;
  return largest_bound<float>([&](float bound) {
    double sums[2] = {};
#pragma unroll 4
    for (int j = threadIdx.x; j < m; j += blockDim.x) {
      const float size = std::fabs(clamped_log_ratio(__ldcg(log_ratio + j)));
      if (!(size <= bound)) continue;
      sums[0] += static_cast<double>(size) * static_cast<double>(size);
      sums[1] += 1;
    }
    block_sums(sums, room);
    return sums[0] <= most * sums[1];
  });
}

// The surrogate of each ratio of some rows by a block, and d loss / d log pi: -m A, and that of KL(mu || pi) = E_mu[log
// mu - log pi]. Returns this thread's share of the sum of losses. bound(most): as second_moment_bound has it.
template <class Advantage, class Bound>
__device__ double surrogate_losses(const LossArrays& a, const LossOptions& o, int first_row, int end_row,
                                   Advantage&& advantage_of, Bound&& bound) {
  const int dims = o.ratios, parts = o.dims / dims;
  const float* log_ratio = o.centred ? a.trust : a.ratio;
  const float inverse_size = 1.0f / static_cast<float>(o.n);
  double sum = 0;
  const auto each = [&](auto&& functor_at) {
    for (int j = first_row * dims + threadIdx.x; j < end_row * dims; j += blockDim.x) {
      const float advantage = advantage_of(j / dims);
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
      const SecondMomentTerm of_batch{bound(functor.most)};
      each([&](int) { return of_batch; });
    } else if constexpr (requires { functor.at(0.0); }) {
      each([&](int j) { return functor.at(a.gap[j / dims]); });
    } else {
      each([&](int) { return functor; });
    }
  });
  return sum;
}

// Derivatives of one dimension of one row: by its outputs, and by its log standard deviation.
template <int kLanes>
__device__ inline void output_gradient_head(const LossArrays& a, const LossOptions& o, int row, int d,
                                            const RowOutputs& of, float* d_outputs, float* d_log_std) {
  const int lane = threadIdx.x % kLanes;
  const float inverse_size = 1.0f / static_cast<float>(o.n);
  const float entropy_coef = static_cast<float>(a.header->entropy_coef) * inverse_size,
              kl_coef = o.proximal_coef * inverse_size;
  const Head head = a.heads[d];
  const std::size_t at = static_cast<std::size_t>(row) * o.dims + d;
  const float action = a.action[at], d_log_prob = a.d_log_prob[at];
  if (head.choices > 0) {
    const std::uint8_t* valid = of.mask ? of.mask + head.mask : nullptr;
    const float norm = a.norm[at], entropy = a.head_entropy[at];
    const int chosen = static_cast<int>(action);
#pragma unroll kLoadsAtOnce < kLanes>
    for (int k = lane; k < head.choices; k += kLanes) {
      const bool is_valid = valid_choice(valid, k);
      const ChoiceTerms<float> c = choice_terms(of.policy[head.output + k], is_valid, norm);
      float g = choice_gradient(c, d_log_prob, entropy_coef, entropy);
      if (o.proximal) {
        g += kl_coef * (c.p - choice_terms(of.other[head.output + k], is_valid, a.average_norm[at]).p);
      }
      if (k == chosen) g += d_log_prob;
      d_outputs[head.output + k] = is_valid ? g : 0.0f;
    }
  } else if (lane == 0) {
    const GaussianTerms<float> pi = gaussian_of(of.policy, a.log_std, head);
    GaussianGradient<float> g = gaussian_gradient(pi, action, d_log_prob, entropy_coef);
    if (o.proximal) add_gaussian_kl(gaussian_of(of.other, a.average_log_std, head), pi, kl_coef, g);
    d_outputs[head.output] = g.mean;
    d_log_std[head.extra] = g.log_std;
  }
}
// Of one row, by a warp or by a thread.
template <int kLanes = 32>
__device__ inline void output_gradient_row(const LossArrays& a, const LossOptions& o, int row, const float* outputs,
                                           const float* other, float* d_outputs, float* d_log_std) {
  const RowOutputs of = row_outputs(a, o, row, outputs, other);
  for (int d = 0; d < o.dims; ++d) output_gradient_head<kLanes>(a, o, row, d, of, d_outputs, d_log_std);
}

}  // namespace gipo::cuda
