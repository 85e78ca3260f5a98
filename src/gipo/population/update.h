// One update of a run on a card, as CpuLearner has it. Compiles for host and device.
#pragma once

#include <type_traits>

#include "gipo/kernels/adamw_terms.h"
#include "gipo/learner/batch_figures.h"
#include "gipo/population/sample.h"

namespace gipo::population {

// What one update has beside the arrays.
struct Update {
  int stretches = 0;
  bool policy_due = true, ratios_due = true, logged = false;
  double entropy = 0, proximal = 0, importance = 0, cut = 0;  // this thread's sums
};

GIPO_CARD GaussianTerms<float> gaussian_of(float mean, float log_std) { return {mean, log_std, std::exp(-log_std)}; }

// Sample i, once the policy's outputs and the average's are there: its ratios.
GIPO_CARD void evaluate_sample(const Run& run, int i, Update& u) {
  const RunSpec& s = run.spec;
  const Workspace& w = run.work;
  const int n = outputs_of(s);
  const float *outputs = w.outputs + i * n, *other = s.looks_at_average ? w.average_outputs + i * n : nullptr;
  const float* const action = w.action + i * s.dims;
  const float behaviour = w.joint[i];
  float log_prob = 0, average_log_prob = 0;
  if (s.choices > 0) {
    const auto size = static_cast<std::size_t>(n);
    const float norm = log_sum_exp<float>(outputs, nullptr, size);
    const float average_norm = other ? log_sum_exp<float>(other, nullptr, size) : 0;
    float entropy = 0, kl = 0;
    for (int k = 0; k < n; ++k) {
      const ChoiceTerms<float> c = choice_terms(outputs[k], true, norm);
      entropy -= c.p * c.log_p;
      if (!(s.proximal_coef > 0)) continue;
      const ChoiceTerms<float> q = choice_terms(other[k], true, average_norm);
      kl = add_categorical_kl(kl, &q.p, &q.log_p, &c.log_p, 1);
    }
    u.entropy += entropy;
    u.proximal += kl;
    log_prob = outputs[static_cast<int>(action[0])] - norm;
    if (other) average_log_prob = other[static_cast<int>(action[0])] - average_norm;
  } else {
    for (int a = 0; a < s.dims; ++a) {
      const GaussianTerms<float> pi = gaussian_of(outputs[a], w.policy[s.policy.extra_at + a]);
      u.entropy += gaussian_entropy(pi.log_std);
      log_prob += gaussian_log_prob(pi, action[a]);
      if (!other) continue;
      const GaussianTerms<float> q = gaussian_of(other[a], w.average[s.policy.extra_at + a]);
      average_log_prob += gaussian_log_prob(q, action[a]);
      if (s.proximal_coef > 0) u.proximal += gaussian_kl(q, pi);
    }
  }
  w.joint[i] = log_prob - behaviour;
  if (!s.centred) return;
  const float most = static_cast<float>(s.importance_max);
  w.trust[i] = log_prob - average_log_prob;
  w.importance[i] = importance_weight(average_log_prob - behaviour, most);
  u.importance += w.importance[i];
  u.cut += w.importance[i] >= most ? 1.0 : 0.0;
}

// What samples are, values, and where ratios are due log-probs. Ends with a sync.
template <class Team>
GIPO_CARD void evaluate_batch(Team& team, const Run& run, Update& u) {
  const RunSpec& s = run.spec;
  const RunMemory& m = run.memory;
  const Workspace& w = run.work;
  const auto d = static_cast<std::size_t>(s.observation);
  for (int i = team.rank(); i < s.batch; i += team.size()) {
    const int row = w.rows[i];
    for (int a = 0; a < s.dims; ++a) {
      w.action[i * s.dims + a] = m.action[static_cast<std::size_t>(row) * s.dims + a];
    }
    w.joint[i] = m.log_prob[row];  // of the behaviour policy, until the ratio takes its place
    w.reward[i] =
        within(run.state().reward_factor * m.reward[row], -run.state().reward_limit, run.state().reward_limit);
  }
  const int outputs = outputs_of(s), stride = s.policy.layers[s.policy.count - 1].stride,
            value_stride = s.critic.layers[s.critic.count - 1].stride;
  const auto keep = [&](float* to, int begin, int count) {
    for (int t = team.rank(); t < count * outputs; t += team.size()) {
      to[begin * outputs + t] = w.samples[s.policy.count][t / outputs * stride + t % outputs];
    }
    team.sync();
  };
  for (int begin = 0; begin < s.batch; begin += s.chunk) {
    const int count = smaller_of(s.chunk, s.batch - begin);
    see(team, run, count, [&](int i) { return m.observation + static_cast<std::size_t>(w.rows[begin + i]) * d; });
    forward(team, s.critic, w.critic, w.samples, count, s.activation);
    for (int i = team.rank(); i < count; i += team.size()) {
      w.value[begin + i] = w.samples[s.critic.count][i * value_stride];
    }
    team.sync();
    if (!u.ratios_due) continue;
    forward(team, s.policy, w.policy, w.samples, count, s.activation);
    keep(w.outputs, begin, count);
    if (!s.looks_at_average) continue;
    forward(team, s.policy, w.average, w.samples, count, s.activation);
    keep(w.average_outputs, begin, count);
  }
  for (int begin = 0; begin < u.stretches; begin += s.chunk) {
    const int count = smaller_of(s.chunk, u.stretches - begin);
    see(team, run, count, [&](int i) {
      const int last = w.stretch_begin[begin + i] + std::abs(w.stretch_length[begin + i]) - 1;
      return m.observation + static_cast<std::size_t>((w.rows[last] + 1) % s.rows) * d;
    });
    forward(team, s.critic, w.critic, w.samples, count, s.activation);
    for (int i = team.rank(); i < count; i += team.size()) {
      w.after[begin + i] = w.samples[s.critic.count][i * value_stride];
    }
    team.sync();
  }
  if (u.ratios_due) {
    for (int i = team.rank(); i < s.batch; i += team.size()) evaluate_sample(run, i, u);
  }
  team.sync();
}

// The recursion over one stretch, by one thread.
GIPO_CARD void stretch_advantages(const Run& run, int which) {
  const RunSpec& s = run.spec;
  const Workspace& w = run.work;
  const int begin = w.stretch_begin[which], length = std::abs(w.stretch_length[which]);
  const float after = w.stretch_length[which] < 0 ? 0.0f : w.after[which];
  const VtraceLimits<float> limits{static_cast<float>(s.gamma), static_cast<float>(s.lambda),
                                   static_cast<float>(s.rho_bar), static_cast<float>(s.c_bar)};
  GaeNext<float> gae{after};
  VtraceNext<float> vtrace{after, after};
  for (int t = begin + length - 1; t >= begin; --t) {
    const AdvantageTerm<float> term = s.advantages == Advantages::kGae
                                          ? gae_step(w.reward[t], w.value[t], limits.gamma, limits.lambda, gae)
                                          : vtrace_step(w.reward[t], w.value[t], w.joint[t], limits, vtrace);
    w.advantage[t] = term.advantage;
    w.target[t] = term.target;
  }
}

// Advantages, targets and the figures that are sums over the batch. Ends with a sync.
template <class Team>
GIPO_CARD void compute_advantages(Team& team, const Run& run, const Update& u, LoggedUpdate& figures) {
  const RunSpec& s = run.spec;
  const Workspace& w = run.work;
  const int n = s.batch;
  if (s.advantages == Advantages::kStored) {
    for (int i = team.rank(); i < n; i += team.size()) {
      w.advantage[i] = run.memory.advantage[w.rows[i]];
      w.target[i] = run.memory.target[w.rows[i]];
    }
  } else {
    for (int which = team.rank(); which < u.stretches; which += team.size()) stretch_advantages(run, which);
  }
  team.sync();
  using namespace batch_sums;
  BatchSums sums = {};
  sums[kEntropy] = u.entropy, sums[kProximal] = u.proximal, sums[kImportance] = u.importance, sums[kCut] = u.cut;
  float largest = 0;
  for (int i = team.rank(); i < n; i += team.size()) {
    add_sample(sums, w.advantage[i], w.target[i], w.value[i]);
    largest = larger_of(largest, std::fabs(w.advantage[i]));
  }
  team.sums(sums);
  largest = team.largest(largest);
  const double mean = sums[kAdvantage] / n, target_mean = sums[kTarget] / n;
  double squares[2] = {};
  for (int i = team.rank(); i < n; i += team.size()) {
    const double a = w.advantage[i] - mean, t = w.target[i] - target_mean;
    squares[0] += a * a;
    squares[1] += t * t;
  }
  team.sums(squares);
  const double deviation = std::sqrt(squares[0] / n);
  if (s.normalise_advantages) {
    const double factor = normalising_factor(deviation, largest);
    for (int i = team.rank(); i < n; i += team.size()) w.advantage[i] = normalised(w.advantage[i], mean, factor);
  }
  fill_figures(figures, sums, deviation, squares[1], largest, n, n, u.ratios_due && s.centred);
  team.sync();
}

GIPO_CARD int gap_of(const Run& run, int i) {
  return static_cast<int>(run.state().version) - run.memory.collected[run.work.rows[i]];
}

// The multiplier of every sample; returns the mean loss. Ends with a sync.
template <class Team>
GIPO_CARD double compute_multipliers(Team& team, const Run& run) {
  const RunSpec& s = run.spec;
  const Workspace& w = run.work;
  const float* const log_ratio = s.centred ? w.trust : w.joint;
  double sum[1] = {};
  const auto each = [&](auto&& functor_at) {
    for (int i = team.rank(); i < s.batch; i += team.size()) {
      SurrogateTerm<float> term = surrogate_term(functor_at(i), log_ratio[i], w.advantage[i]);
      const float weight = s.centred ? w.importance[i] : 1.0f;
      w.multiplier[i] = term.multiplier * weight;
      sum[0] += term.loss * weight;
    }
  };
  visit_surrogate(s.surrogate, [&](const auto& functor) {
    using Functor = std::remove_cvref_t<decltype(functor)>;
    if constexpr (std::is_same_v<Functor, SecondMoment>) {
      const SecondMomentTerm of_batch{largest_bound<float>([&](float bound) {
        double sums[2] = {};
        for (int i = team.rank(); i < s.batch; i += team.size()) {
          const float size = std::fabs(clamped_log_ratio(log_ratio[i]));
          if (!(size <= bound)) continue;
          sums[0] += static_cast<double>(size) * static_cast<double>(size);
          sums[1] += 1;
        }
        team.sums(sums);
        return sums[0] <= functor.most * sums[1];
      })};
      each([&](int) { return of_batch; });
    } else if constexpr (requires { functor.at(0.0); }) {
      each([&](int i) { return functor.at(gap_of(run, i)); });
    } else {
      each([&](int) { return functor; });
    }
  });
  team.sums(sum);
  return sum[0] / s.batch;
}

// Derivatives by the outputs of sample i, in place of row `row` of the outputs, and those by the log deviations.
GIPO_CARD void output_derivatives(const Run& run, double entropy_weight, int i, float* row, float* deviation) {
  const RunSpec& s = run.spec;
  const Workspace& w = run.work;
  const int n = outputs_of(s);
  const float *outputs = w.outputs + i * n, *other = s.proximal_coef > 0 ? w.average_outputs + i * n : nullptr;
  const float* const action = w.action + i * s.dims;
  const float inverse_size = 1.0f / static_cast<float>(s.batch);
  // Of the surrogate, and of KL(mu || pi) = E_mu[log mu - log pi].
  const float d_log_prob = -(w.multiplier[i] * w.advantage[i] + static_cast<float>(s.kl_coef)) * inverse_size;
  const float entropy_coef = static_cast<float>(entropy_weight) * inverse_size,
              kl_coef = static_cast<float>(s.proximal_coef) * inverse_size;
  if (s.choices > 0) {
    const auto size = static_cast<std::size_t>(n);
    const float norm = log_sum_exp<float>(outputs, nullptr, size);
    const float average_norm = other ? log_sum_exp<float>(other, nullptr, size) : 0;
    float entropy = 0;
    for (int k = 0; k < n; ++k) {
      const ChoiceTerms<float> c = choice_terms(outputs[k], true, norm);
      entropy -= c.p * c.log_p;
    }
    for (int k = 0; k < n; ++k) {
      const ChoiceTerms<float> c = choice_terms(outputs[k], true, norm);
      float g = choice_gradient(c, d_log_prob, entropy_coef, entropy);
      if (other) g += kl_coef * (c.p - choice_terms(other[k], true, average_norm).p);
      row[k] = k == static_cast<int>(action[0]) ? g + d_log_prob : g;
    }
  } else {
    for (int a = 0; a < n; ++a) {
      const int extra = s.policy.extra_at + a;
      const GaussianTerms<float> pi = gaussian_of(outputs[a], w.policy[extra]);
      GaussianGradient<float> g = gaussian_gradient(pi, action[a], d_log_prob, entropy_coef);
      if (other) add_gaussian_kl(gaussian_of(other[a], w.average[extra]), pi, kl_coef, g);
      row[a] = g.mean;
      deviation[a] = g.log_std;
    }
  }
  for (int k = n; k < fours(n); ++k) row[k] = 0;
}

// One network forward again and back, chunk by chunk. derive(i, row, deviation): of sample i. Returns the norm of the gradient; ends
// with a sync.
template <class Team, class Derive>
GIPO_CARD double compute_gradient(Team& team, const Run& run, const Net& net, const float* weights,
                                  const Derive& derive) {
  const RunSpec& s = run.spec;
  const Workspace& w = run.work;
  const auto d = static_cast<std::size_t>(s.observation);
  float* const gradient = w.gradient;
  for (int i = team.rank(); i < net.parameters; i += team.size()) gradient[i] = 0;
  for (int a = team.rank(); a < net.extra; a += team.size()) w.deviation_sums[a] = 0;
  const int stride = net.layers[net.count - 1].stride;
  for (int begin = 0; begin < s.batch; begin += s.chunk) {
    const int count = smaller_of(s.chunk, s.batch - begin);
    see(team, run, count,
        [&](int i) { return run.memory.observation + static_cast<std::size_t>(w.rows[begin + i]) * d; });
    forward(team, net, weights, w.samples, count, s.activation);
    for (int i = team.rank(); i < count; i += team.size()) {
      derive(begin + i, w.samples[net.count] + i * stride, w.deviation + i * net.extra);
    }
    team.sync();
    for (int a = team.rank(); a < net.extra; a += team.size()) {
      for (int i = 0; i < count; ++i) w.deviation_sums[a] += w.deviation[i * net.extra + a];
    }
    backward(team, net, weights, w.samples, count, s.activation, gradient, w.parts);
  }
  for (int a = team.rank(); a < net.extra; a += team.size()) {
    gradient[net.extra_at + a] = static_cast<float>(w.deviation_sums[a]);
  }
  team.sync();
  double squares[1] = {};
  for (int i = team.rank(); i < net.parameters; i += team.size()) {
    squares[0] += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
  }
  team.sums(squares);
  return std::sqrt(squares[0]);
}

// Where a network's parameters and their moments lie.
struct Trained {
  float *parameters, *gradient, *first, *second;
};

// One step of AdamW, its `steps`-th.
template <class Team>
GIPO_CARD void apply_gradient(Team& team, const RunSpec& s, const Net& net, const Trained& p, double rate, double norm,
                              std::int64_t steps) {
  const auto n = static_cast<double>(steps);
  const auto step = adamw_constants<float>({s.beta1, s.beta2, s.epsilon, s.weight_decay}, rate,
                                           smaller_of(1.0, s.max_grad_norm / (norm + 1e-6)), std::pow(s.beta1, n),
                                           std::pow(s.beta2, n));
  for (int i = team.rank(); i < net.parameters; i += team.size()) {
    adamw_step(step, p.gradient[i], p.parameters[i], p.first[i], p.second[i]);
    if (i >= net.extra_at && i < net.extra_at + net.extra) {
      p.parameters[i] = within(p.parameters[i], static_cast<float>(kMinLogStd), static_cast<float>(kMaxLogStd));
    }
  }
}

// The gap of some samples of this update goes into the pool; by one thread.
GIPO_CARD void record_gaps(const Run& run) {
  const RunSpec& s = run.spec;
  RunState& state = run.state();
  // Another place in every batch: its first step always begins a segment, so that short ones would count too much.
  const int first = static_cast<int>(state.version * 37 % s.gap_stride);
  for (int i = (s.gap_stride - first) % s.gap_stride; i < s.batch; i += s.gap_stride) {
    if (state.gap_count < s.gap_pool) {
      run.memory.gaps[state.gap_count++] = gap_of(run, i);
    } else {
      run.memory.gaps[state.gap_at] = gap_of(run, i);
      state.gap_at = (state.gap_at + 1) % s.gap_pool;
    }
  }
}

// What the host needs to say what each age of data did. Before the parameters change.
template <class Team>
GIPO_CARD void report_samples(Team& team, const Run& run) {
  const RunSpec& s = run.spec;
  const RunState& state = run.state();
  const auto n = static_cast<std::size_t>(s.batch);
  float* const samples = run.memory.log_samples + static_cast<std::size_t>(state.logs) * 4 * n;
  std::int32_t* const ages =
      run.memory.log_ages + static_cast<std::size_t>(state.logs) * static_cast<std::size_t>(log_ages_size(s));
  for (int i = team.rank(); i < s.batch; i += team.size()) {
    samples[i] = run.work.joint[i];
    samples[n + i] = run.work.advantage[i];
    samples[2 * n + i] = run.work.multiplier[i];
    samples[3 * n + i] = s.centred ? run.work.trust[i] : 0.0f;
    ages[i] = gap_of(run, i);
    ages[n + i] = run.memory.env_step[run.work.rows[i]];
  }
  for (int i = team.rank(); i < state.gap_count; i += team.size()) ages[2 * n + i] = run.memory.gaps[i];
}

// One update from the replay. Ends with a sync.
template <class Team>
GIPO_CARD void update(Team& team, const Run& run) {
  const RunSpec& s = run.spec;
  const RunMemory& m = run.memory;
  const Workspace& w = run.work;
  RunState& state = run.state();
  const std::int64_t next = state.version + 1;
  Update u;
  u.logged = next % s.log_every == 0 || next == s.updates;
  u.policy_due = next % s.policy_every == 0;
  u.ratios_due = u.policy_due || u.logged || s.advantages == Advantages::kVtrace;
  if (s.rollout_updates > 0) {
    sample_pass(team, run);
  } else if (s.single_steps) {
    sample_steps(team, run);
  } else {
    const int stretches = sample_segments(team, run);
    u.stretches = s.advantages == Advantages::kStored ? 0 : stretches;
  }
  evaluate_batch(team, run, u);
  LoggedUpdate figures;
  compute_advantages(team, run, u, figures);
  if (u.ratios_due) figures.policy_loss = compute_multipliers(team, run);
  if (team.rank() == 0) record_gaps(run);
  team.sync();
  if (u.logged) report_samples(team, run);
  const float value_scale = static_cast<float>(2 * s.value_coef) / static_cast<float>(s.batch);
  figures.value_grad_norm = compute_gradient(team, run, s.critic, w.critic, [&](int i, float* row, float*) {
    store_four(row, {{value_scale * (w.value[i] - w.target[i]), 0, 0, 0}});
  });
  const auto done = static_cast<double>(state.version), all = static_cast<double>(s.updates);
  if (u.policy_due) {
    const double entropy_weight = s.entropy_coef * schedule_factor(s.entropy_schedule, done, all);
    for (int i = team.rank(); i < s.critic.parameters; i += team.size()) m.critic_gradient[i] = w.gradient[i];
    team.sync();
    figures.policy_grad_norm = compute_gradient(
        team, run, s.policy, w.policy,
        [&](int i, float* row, float* deviation) { output_derivatives(run, entropy_weight, i, row, deviation); });
  }
  const double factor = schedule_factor(s.schedule, done, all, static_cast<double>(s.warmup_updates));
  figures.policy_lr = s.policy_lr * factor;
  figures.value_lr = s.value_lr * factor;
  figures.reward_factor = state.reward_factor;
  const bool skipped = !is_finite(figures.policy_grad_norm) || !is_finite(figures.value_grad_norm) ||
                       !is_finite(figures.policy_loss) || !is_finite(figures.value_loss);
  if (!skipped) {
    apply_gradient(team, s, s.critic,
                   {w.critic, u.policy_due ? m.critic_gradient : w.gradient, m.critic_first, m.critic_second},
                   figures.value_lr, figures.value_grad_norm, state.critic_steps + 1);
    if (u.policy_due) {
      apply_gradient(team, s, s.policy, {w.policy, w.gradient, m.policy_first, m.policy_second}, figures.policy_lr,
                     figures.policy_grad_norm, state.policy_steps + 1);
      if (s.keeps_average) {
        // Each thread has its own parameters.
        const double decay = 1 - 1 / s.proximal_updates;
        const float step =
            static_cast<float>(average_step(decay, std::pow(decay, static_cast<double>(state.policy_steps + 2))));
        for (int i = team.rank(); i < s.policy.parameters; i += team.size()) {
          w.average[i] = (1.0f - step) * w.average[i] + step * w.policy[i];
        }
      }
    }
  }
  team.sync();
  if (team.rank() == 0) {
    state.version = next;
    if (skipped) {
      ++state.skipped;
      ++state.skipped_in_a_row;
    } else {
      state.skipped_in_a_row = 0;
      ++state.critic_steps;
      state.policy_steps += u.policy_due ? 1 : 0;
    }
    figures.update = next;
    figures.env_steps = state.env_steps;
    figures.replay_size = state.size;
    figures.skipped_updates = state.skipped;
    figures.rejected = state.rejected;
    figures.pooled = state.gap_count;
    figures.episodes = state.episodes;
    state.last = figures;
    if (u.logged) m.logs[state.logs++] = figures;
  }
  team.sync();
}

}  // namespace gipo::population
