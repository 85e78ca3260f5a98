#include "gipo/population/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "gipo/core/error.h"
#include "gipo/core/stop.h"
#include "gipo/io/bytes.h"
#include "gipo/objective/surrogate.h"
#include "gipo/population/layout.h"
#include "gipo/population/prepare.h"
#include "gipo/train/evaluator.h"
#include "gipo/train/trainer.h"

namespace gipo::population {
namespace {

UpdateStats stats_of(const LoggedUpdate& u) {
  UpdateStats s;
  s.policy_loss = u.policy_loss;
  s.value_loss = u.value_loss;
  s.entropy = u.entropy;
  s.proximal_kl = u.proximal_kl;
  s.explained_variance = u.explained_variance;
  s.importance_mean = u.importance_mean;
  s.importance_cut_frac = u.importance_cut_frac;
  s.policy_grad_norm = u.policy_grad_norm;
  s.value_grad_norm = u.value_grad_norm;
  s.policy_lr = u.policy_lr;
  s.value_lr = u.value_lr;
  s.advantage_mean = u.advantage_mean;
  s.advantage_std = u.advantage_std;
  s.advantage_abs_max = u.advantage_abs_max;
  s.value_mean = u.value_mean;
  s.reward_factor = u.reward_factor;
  return s;
}

const RunState& state_of(const char* head) { return *reinterpret_cast<const RunState*>(head); }

}  // namespace

Recorder::Recorder(const Plan& plan, const RunSpec& spec, const std::string& command, std::function<double()> wall_time,
                   const std::string& card)
    : plan_(plan),
      spec_(spec),
      folder_(plan, command, std::move(wall_time)),
      setup_(plan.learner_setup()),
      clips_to_zero_(Surrogate(plan.config.surrogate).clips_to_zero()),
      book_(setup_) {
  folder_.log(fmt::format("start on {}, one run of a population: {} updates, {} env steps, window {:.6g} updates", card,
                          plan.config.learner.updates, plan.total_env_steps(), plan.window));
}

void Recorder::take(const char* head, const char* report) {
  Carver carver(const_cast<char*>(report));
  RunMemory m;
  carve_report(spec_, m, carver);
  const RunState& state = state_of(head);
  const auto n = static_cast<std::size_t>(spec_.batch), ages = static_cast<std::size_t>(log_ages_size(spec_));
  std::int64_t told = 0;
  for (int i = 0; i < state.logs; ++i) {
    const LoggedUpdate& u = m.logs[i];
    for (; told < u.episodes; ++told) log_episode(m.episodes[told]);
    const auto at = static_cast<std::size_t>(i);
    log_update(u, m.log_samples + at * 4 * n, m.log_ages + at * ages);
  }
  for (; told < state.episodes; ++told) log_episode(m.episodes[told]);
  updates_ = state.version;
  if (state.not_finite) {
    throw RunError("an environment or the policy gave what is no finite number");
  }
  book_.version = state.version;
  book_.skipped_in_a_row = state.skipped_in_a_row;
  book_.refuse_divergence(stats_of(state.last), plan_.config.learner.max_bad_updates);
}

void Recorder::log_episode(const Episode& e) {
  folder_.episode({static_cast<std::size_t>(e.env), e.number, e.episode_return, e.length, e.env_steps, e.version,
                   e.terminated != 0});
  if (recent_.size() < kRecentEpisodes) recent_.emplace_back();
  recent_[static_cast<std::size_t>(episodes_++) % kRecentEpisodes] = e.episode_return;
}

void Recorder::diagnose(const LoggedUpdate& u, const float* samples, const std::int32_t* ages) {
  const auto n = static_cast<std::size_t>(spec_.batch);
  book_.gap.assign(ages, ages + n);
  book_.age.resize(n);
  for (std::size_t i = 0; i < n; ++i) book_.age[i] = static_cast<double>(u.env_steps - ages[n + i]);
  book_.gap_pool.assign(ages + 2 * n, ages + 2 * n + u.pooled);
  DiagnosticsInput in = diagnostics_of(setup_, book_, clips_to_zero_);
  in.log_ratio = {samples, n};
  in.advantage = {samples + n, n};
  in.multiplier = {samples + 2 * n, n};
  if (spec_.centred) in.trust = {samples + 3 * n, n};
  diagnostics_.compute(in);
}

void Recorder::log_update(const LoggedUpdate& u, const float* samples, const std::int32_t* ages) {
  diagnose(u, samples, ages);
  const ReturnStats recent = return_stats(recent_);
  figures_.clear();
  figures_.insert(figures_.end(),
                  {{"return_mean", recent.episodes > 0 ? recent.mean : std::numeric_limits<double>::quiet_NaN()},
                   {"episodes", static_cast<double>(episodes_)}});
  stats_of(u).append_to(figures_);
  const Figures& diagnostics = diagnostics_.figures();
  figures_.insert(figures_.end(), diagnostics.begin(), diagnostics.end());
  figures_.insert(figures_.end(), {{"replay_size", static_cast<double>(u.replay_size)},
                                   {"skipped_updates", static_cast<double>(u.skipped_updates)},
                                   {"rejected_segments", static_cast<double>(u.rejected)}});
  folder_.metrics(u.update, u.env_steps, figures_, diagnostics_);
}

void Recorder::finish(const char* head, const Rejections& rejections, const Stop& stop, double seconds) {
  const Config& c = plan_.config;
  const Weights weights = weights_of(plan_, spec_, head);
  folder_.save_policy(weights_to_safetensors(plan_.model, weights, plan_.env.id));
  const EvalTask task{
      plan_.env,
      c.env,
      c.env_options,
      c.eval.episodes,
      derive_seed(static_cast<std::uint64_t>(c.run.seed), "evaluation", static_cast<std::uint64_t>(weights.version)),
      true,
      &stop};
  const Evaluation result = evaluate(plan_.model, weights, task);
  folder_.evaluation(weights.version, state_of(head).env_steps, result);
  eval_return_ = result.returns;
  eval_faults_ = result.faults;
  folder_.log("finished");
  folder_.write_summary(summary(head, rejections, "finished", seconds));
}

void Recorder::fail(const char* head, const Rejections& rejections, const std::string& why, double seconds) {
  folder_.log("failed: " + why);
  folder_.save_policy(weights_to_safetensors(plan_.model, weights_of(plan_, spec_, head), plan_.env.id));
  folder_.write_summary(summary(head, rejections, "failed: " + why, seconds));
}

RunSummary Recorder::summary(const char* head, const Rejections& rejections, const std::string& ended,
                             double seconds) const {
  const RunState& state = state_of(head);
  RunSummary s;
  s.ended = ended;
  s.env_steps = state.env_steps;
  s.updates = state.version;
  s.episodes = episodes_;
  s.skipped_updates = state.skipped;
  s.rejected_segments = static_cast<std::uint64_t>(state.rejected);
  s.faults = rejections.by_name;
  s.eval_faults = eval_faults_;
  s.replay_size = static_cast<std::uint64_t>(state.size);
  s.replay_evicted = static_cast<std::uint64_t>(state.evicted);
  s.seconds = seconds;
  s.final_return = return_stats(recent_);
  s.eval_return = eval_return_;
  s.weights_fingerprint = checksum_of([&](ByteWriter& out) { weights_of(plan_, spec_, head).save(out); });
  return s;
}

}  // namespace gipo::population
