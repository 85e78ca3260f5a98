#include "gipo/train/trainer.h"

#include <fmt/format.h>

#include <limits>

#include "gipo/core/bytes.h"
#include "gipo/core/error.h"

namespace gipo {
namespace {

// A broken invariant is a defect of ours: what is in memory then is not to be trusted.
bool trusted(const std::exception& e) { return dynamic_cast<const InvariantError*>(&e) == nullptr; }

std::string new_episodes_on_resume(const Plan& plan) {
  return plan.env.id + ": its state cannot be saved; a resumed run begins new episodes";
}

}  // namespace

std::string opening(const Plan& plan) {
  const std::string first = plan.name + ": " + dial(plan);
  return plan.env.saves_state ? first : first + "\n" + new_episodes_on_resume(plan);
}

Trainer::Trainer(const Plan& plan, RunFolder& folder, TrainerHooks hooks)
    : plan_(plan),
      folder_(folder),
      hooks_(std::move(hooks)),
      pool_(plan.config.run.mode == "lockstep" ? static_cast<std::size_t>(plan.config.run.threads) : 1),
      replay_(plan.replay_shape(), RandomStream::derive(static_cast<std::uint64_t>(plan.config.run.seed), "replay")),
      learner_(make_learner(plan.learner_setup(),
                            RandomStream::derive(static_cast<std::uint64_t>(plan.config.run.seed), "weights"), pool_)),
      moments_(plan.env.observation_size),
      checkpoints_(folder.path() + "/" + kCheckpointFolder, plan.config.checkpoint.keep) {
  for (std::size_t i = 0; i < plan.actors; ++i) actors_.push_back(std::make_unique<Actor>(plan, i));
  recent_.reserve(kRecentEpisodes);
  recent_success_.reserve(kRecentEpisodes);
  next_episode_.assign(plan.envs(), 0);
  store_.publish(*learner_);
}

RunSummary Trainer::run() {
  folder_.log(fmt::format(
      "start: {} updates, {} env steps, window {:.6g} updates = capacity {} / {:.6g} env steps per update",
      plan_.config.learner.updates, plan_.total_env_steps(), plan_.window, plan_.capacity, plan_.env_steps_per_update));
  if (!plan_.env.saves_state) folder_.log(new_episodes_on_resume(plan_));
  try {
    if (lockstep()) {
      run_lockstep();
    } else {
      run_async();
    }
    // Before the last evaluation, which a longer run would not make here.
    submit_checkpoint(lockstep());
    checkpoints_.finish();
    pass_on_warnings();
    folder_.save_policy(weights_to_safetensors(plan_.model, *store_.get(), plan_.env.id));
    if (finished()) {
      eval_return_ = evaluate(plan_.model, *store_.get(), eval_task(learner_->version()));
      log_evaluation(learner_->version(), env_steps_, eval_return_);
    }
  } catch (const std::exception& e) {
    folder_.log(fmt::format("failed: {}", e.what()));
    if (trusted(e)) submit_checkpoint(false);
    checkpoints_.finish();
    pass_on_warnings();
    // The last good weights: no update that is not finite reaches them.
    folder_.save_policy(weights_to_safetensors(plan_.model, *store_.get(), plan_.env.id));
    folder_.write_summary(summary(fmt::format("failed: {}", e.what())));
    throw;
  }
  const RunSummary result = summary(solved_ ? "solved" : finished() ? "finished" : "interrupted");
  folder_.log(result.ended);
  folder_.write_summary(result);
  return result;
}

void Trainer::run_lockstep() {
  Batch batch(static_cast<std::size_t>(plan_.config.learner.batch_size), plan_.env.observation_size,
              plan_.env.action.dims());
  while (!finished() && !interrupted()) {
    collect(plan_.env_steps_due(learner_->version()));
    if (!plan_.on_policy()) set_scales();
    if (!replay_.sample(batch)) {
      throw RunError(
          fmt::format("the replay is empty after {} env steps: all {} segments were rejected because they "
                      "held numbers that are not finite",
                      env_steps_, rejected_));
    }
    update(batch);
    if (evaluation_due()) {
      const ReturnStats result = evaluate(plan_.model, *store_.get(), eval_task(learner_->version()));
      log_evaluation(learner_->version(), env_steps_, result);
    }
    if (checkpoint_due()) submit_checkpoint(true);
  }
}

// From all that the replay was ever given.
void Trainer::set_scales() {
  if (plan_.config.env.normalise_observations) {
    replay_.copy_moments(moments_);
    learner_->set_observation_scale(moments_);
  }
  if (plan_.config.env.normalise_rewards) {
    replay_.copy_returns(returns_);
    learner_->set_reward_scale(returns_);
  }
}

// Rounds of one step by every environment, until `due` steps have been taken. Actors do not meet within a collection,
// and what they finished is taken in their order: the number of threads cannot be seen in the result.
void Trainer::collect(std::int64_t due) {
  const auto per_round = static_cast<std::int64_t>(plan_.envs());
  if (env_steps_ >= due) return;
  const std::int64_t rounds = (due - env_steps_ + per_round - 1) / per_round;
  if (plan_.on_policy()) {
    // The scales hold still while a rollout is collected and learned from, so that the first pass is on-policy.
    set_scales();
    store_.publish(*learner_);
  }
  const std::shared_ptr<const Weights> weights = store_.get();
  pool_.run(actors_.size(), [&](std::size_t i) {
    for (std::int64_t r = 0; r < rounds; ++r) actors_[i]->step(*weights, env_steps_ + r * per_round);
    if (plan_.on_policy()) actors_[i]->cut(*weights);
  });
  env_steps_ += rounds * per_round;
  std::vector<Episode> episodes;
  rejected_ = 0;
  for (const auto& actor : actors_) {
    actor->drain(replay_, episodes);
    rejected_ += actor->rejected();
    actor->take_faults(faults_);
    if (!actor->last_fault().empty()) last_fault_ = actor->last_fault();
  }
  take_episodes(episodes);
}

void Trainer::update(const Batch& batch) {
  const std::int64_t next = learner_->version() + 1;
  const bool log = next % plan_.config.log.every_updates == 0 || next == plan_.config.learner.updates;
  const UpdateStats& stats = learner_->update(batch, {env_steps_, log});
  store_.publish(*learner_);
  if (log) log_update(stats);
}

void Trainer::log_update(const UpdateStats& stats) {
  pass_on_warnings();
  const ReturnStats recent = recent_returns();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  figures_.clear();
  figures_.insert(figures_.end(), {{"return_mean", recent.episodes > 0 ? recent.mean : nan},
                                   {"episodes", static_cast<double>(episode_count_)}});
  if (recent.success_rate) {
    figures_.insert(figures_.end(),
                    {{"success_rate", *recent.success_rate}, {"success_rate_last", *recent.success_rate_last}});
  }
  stats.append_to(figures_);
  const Figures& diagnostics = learner_->diagnostics().figures();
  figures_.insert(figures_.end(), diagnostics.begin(), diagnostics.end());
  figures_.insert(figures_.end(), {{"replay_size", static_cast<double>(replay_.size())},
                                   {"skipped_updates", static_cast<double>(learner_->skipped_updates())},
                                   {"rejected_segments", static_cast<double>(rejected_)}});
  folder_.metrics(learner_->version(), env_steps_, figures_, learner_->diagnostics());
  if (!hooks_.progress) return;
  Progress p;
  p.update = learner_->version();
  p.updates = plan_.config.learner.updates;
  p.env_steps = env_steps_;
  p.total_env_steps = plan_.total_env_steps();
  p.episodes = episode_count_;
  p.recent_return = recent.episodes > 0 ? recent.mean : nan;
  for (const auto& [name, value] : diagnostics) {
    if (name == "gap_mean") p.gap_mean = value;
  }
  p.seconds = seconds();
  p.figures = &figures_;
  hooks_.progress(p);
}

void Trainer::take_episodes(std::vector<Episode>& episodes) {
  for (const Episode& e : episodes) {
    folder_.episode(e);
    if (recent_.size() < kRecentEpisodes) {
      recent_.emplace_back();
      recent_success_.emplace_back();
    }
    const std::size_t at = static_cast<std::size_t>(episode_count_) % kRecentEpisodes;
    recent_[at] = e.episode_return;
    recent_success_[at] = e.success;
    next_episode_[e.env] = e.number + 1;
    ++episode_count_;
  }
  if (!episodes.empty()) check_target();
  episodes.clear();
}

void Trainer::check_target() {
  const Maybe<double> target = plan_.config.run.target_return;
  solved_ = target && recent_.size() == kRecentEpisodes && recent_returns().mean >= *target;
}

ReturnStats Trainer::recent_returns() const { return return_stats(recent_, recent_success_); }

EvalTask Trainer::eval_task(std::int64_t update) const {
  const Config& c = plan_.config;
  return {plan_.env,
          c.env,
          c.env_options,
          c.eval.episodes,
          derive_seed(static_cast<std::uint64_t>(c.run.seed), "evaluation", static_cast<std::uint64_t>(update)),
          true};
}

bool Trainer::evaluation_due() const {
  const std::int64_t every = plan_.config.eval.every_updates;
  return every > 0 && learner_->version() % every == 0 && !finished();
}

void Trainer::log_evaluation(std::int64_t update, std::int64_t env_steps, const ReturnStats& result) {
  folder_.evaluation(update, env_steps, result);
  last_evaluation_ = update;
}

RunSummary Trainer::summary(const std::string& ended) const {
  RunSummary s;
  s.ended = ended;
  s.env_steps = env_steps_;
  s.updates = learner_->version();
  s.episodes = episode_count_;
  s.skipped_updates = learner_->skipped_updates();
  s.rejected_segments = rejected_;
  if (lockstep()) {  // also those of a collection that failed
    s.rejected_segments = 0;
    for (const auto& actor : actors_) s.rejected_segments += actor->rejected();
  }
  s.faults = faults_;
  for (const auto& actor : actors_) actor->take_faults(s.faults);
  s.replay_size = replay_.size();
  s.replay_evicted = replay_.evicted();
  s.seconds = seconds();
  s.final_return = recent_returns();
  s.eval_return = eval_return_;
  s.weights_fingerprint = checksum_of([&](ByteWriter& out) { learner_->save(out); });
  s.replay_fingerprint = replay_.fingerprint();
  return s;
}

}  // namespace gipo
