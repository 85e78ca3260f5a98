#include "gipo/train/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "gipo/clone/likelihood.h"
#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/learner/ranks.h"

namespace gipo {
namespace {

// A broken invariant is a defect of ours: what is in memory then is not to be trusted.
bool trusted(const std::exception& e) { return dynamic_cast<const InvariantError*>(&e) == nullptr; }

// How many observations the scale of another run counts as, beside those of this one.
constexpr double kFirstObservations = 100'000;

LearnerSetup setup_from(const Plan& plan, const std::shared_ptr<const Weights>& first,
                        const std::shared_ptr<RankGroup>& ranks) {
  LearnerSetup setup = plan.learner_setup();
  setup.first = first;
  setup.ranks = ranks;
  return setup;
}

std::string new_episodes_on_resume(const Plan& plan) {
  return plan.env.id + ": its state cannot be saved; a resumed run begins new episodes";
}

bool is_flattened_image(const Field& field) {
  return field.image() && field.shape.size() == 3 && field.role != Role::kMask && !field.raw;
}

std::string flattened(const Field& field, const std::string& env) {
  return fmt::format(
      "{}: {} is an image of {}, which the networks read as a row of {} numbers and learn little from; "
      "learner.backend = torch reads it with convolutions (docs/images.md)",
      env, field.name, fmt::join(field.shape, " x "), field.values());
}

}  // namespace

std::string opening(const Plan& plan) {
  if (plan.clones())
    return fmt::format("{}: {} updates on {}", plan.name, plan.config.learner.updates, plan.config.clone.data);
  std::string text = plan.name + ": " + dial(plan);
  if (!plan.env.saves_state) text += "\n" + new_episodes_on_resume(plan);
  if (!plan.env.saves_state && !plan.config.env.time_limit && plan.env.time_limit > 0) {
    text +=
        fmt::format("\n{} declares no time limit: an episode that goes on is cut off after {} steps (env.time_limit)",
                    plan.env.id, plan.env.time_limit);
  }
  return text;
}

Trainer::Trainer(const Plan& plan, RunFolder& folder, TrainerHooks hooks, const std::shared_ptr<const Weights>& first)
    : plan_(plan),
      folder_(folder),
      hooks_(std::move(hooks)),
      stop_(hooks_.stop),
      actors_stop_(hooks_.stop),
      pool_(plan.config.run.mode == RunMode::kLockstep ? static_cast<std::size_t>(plan.config.run.threads) : 1),
      replay_(plan.replay_shape(), RandomStream::derive(static_cast<std::uint64_t>(plan.config.run.seed), "replay")),
      intake_(replay_, plan.envs()),
      learner_(make_learner(setup_from(plan, first, hooks_.ranks),
                            RandomStream::derive(static_cast<std::uint64_t>(plan.config.run.seed), "weights"), pool_)),
      moments_(plan.env.observation_size),
      checkpoints_(folder.path() + "/" + kCheckpointFolder, plan.config.checkpoint.keep) {
  if (plan.clones() != (hooks_.demonstrations != nullptr)) {
    throw Error(
        fmt::format("clone.data = \"{}\" is not accepted: this run learns from what its actors collect; "
                    "`gipo clone` learns from demonstrations",
                    plan.config.clone.data));
  }
  if (hooks_.demonstrations) {
    likelihood_ = std::make_unique<LikelihoodMeter>(*hooks_.demonstrations, plan.demonstration_use(),
                                                    learner_room(setup_from(plan, first, hooks_.ranks)));
    if (plan.config.env.normalise_observations && !(first && first->scale.is_set())) {
      replay_.begin_moments(hooks_.demonstrations->moments());
    }
  }
  make_actors(0, {});
  if (first && first->scale.is_set() && plan.config.env.normalise_observations) {
    replay_.begin_moments(first->scale.as_moments(kFirstObservations));
  }
  recent_.reserve(kRecentEpisodes);
  recent_success_.reserve(kRecentEpisodes);
  next_episode_.assign(plan.envs(), 0);
  store_.publish(*learner_);
}

void Trainer::make_actors(std::uint64_t incarnation, const std::vector<std::int64_t>& first_episode) {
  if (hooks_.remote || hooks_.demonstrations) return;
  std::vector<ActorSpec> specs;
  for (std::size_t i = 0; i < plan_.actors; ++i) {
    ActorSpec& spec = specs.emplace_back(actor_spec(plan_, i, incarnation));
    if (first_episode.empty()) continue;
    const auto first = first_episode.begin() + static_cast<std::ptrdiff_t>(spec.first_env);
    spec.first_episode.assign(first, first + static_cast<std::ptrdiff_t>(spec.envs));
  }
  std::vector<std::unique_ptr<Env>> all;
  if (plan_.shared_workers) {
    all = make_envs(
        plan_.env, plan_.config.env, plan_.config.env_options,
        {plan_.envs(), plan_.workers, plan_.config.advantage.mode != AdvantageMode::kGroup, &actors_stop_, 0});
  }
  actors_.clear();
  for (ActorSpec& spec : specs) {
    std::vector<std::unique_ptr<Env>> own;
    for (std::size_t i = 0; !all.empty() && i < spec.envs; ++i) own.push_back(std::move(all[spec.first_env + i]));
    actors_.push_back(std::make_unique<Actor>(std::move(spec), &actors_stop_, std::move(own)));
  }
}

// Processes of environments are told to end all at once, before any is waited for.
Trainer::~Trainer() {
  for (const auto& actor : actors_) actor->leave();
}

RunSummary Trainer::run() {
  if (const Demonstrations* d = hooks_.demonstrations) {
    folder_.log(fmt::format("start: {} updates on {} steps of {} demonstrations; {} more are held out",
                            plan_.config.learner.updates, d->learned().size(), d->episodes() - d->episodes_held_out(),
                            d->episodes_held_out()));
  } else {
    folder_.log(fmt::format(
        "start: {} updates, {} env steps, window {:.6g} updates = capacity {} / {:.6g} env steps per update",
        plan_.config.learner.updates, plan_.total_env_steps(), plan_.window, plan_.capacity,
        plan_.env_steps_per_update));
  }
  if (!plan_.env.saves_state && !hooks_.demonstrations) folder_.log(new_episodes_on_resume(plan_));
  for (const Field& field : plan_.model.fields) {
    if (is_flattened_image(field)) warn(flattened(field, plan_.env.id));
  }
  try {
    try {
      if (lockstep()) {
        run_lockstep();
      } else {
        run_async();
      }
    } catch (const Interrupted&) {  // in an evaluation, between two updates
    }
    end_run();
  } catch (const RanksLost& e) {
    // The state is in parts, some of which are gone: the last checkpoint is what there is.
    folder_.log(fmt::format("failed: {}", e.what()));
    throw;
  } catch (const std::exception& e) {
    // What goes wrong from here on is told, and the rest is still done: the user is to see why the run failed.
    const auto attempt = [this](auto&& step) {
      try {
        step();
      } catch (const std::exception& second) {
        if (hooks_.warn) hooks_.warn(fmt::format("while the run was being ended: {}", second.what()));
      }
    };
    const std::string why = fmt::format("failed: {}", e.what());
    attempt([&] { folder_.log(why); });
    attempt([&] {
      if (trusted(e)) submit_checkpoint(false);
    });
    attempt([&] { checkpoints_.finish(); });
    attempt([&] { end_remote(false); });
    attempt([&] { pass_on_warnings(); });
    // The last good weights: no update that is not finite reaches them.
    attempt([&] { folder_.save_policy(weights_to_safetensors(plan_.model, *current_weights(), plan_.env.id)); });
    attempt([&] { folder_.write_summary(summary(why)); });
    throw;
  }
  RunSummary result = summary(!evaluated_     ? "interrupted"
                              : solved()      ? "solved"
                              : all_updates() ? "finished"
                                              : "stopped");
  folder_.log(result.ended);
  folder_.write_summary(result);
  see_off_remote();  // last: the evaluation often leaves them time enough to come back
  return result;
}

void Trainer::end_run() {
  // Before the last evaluation, which a longer run would not make here.
  submit_checkpoint(lockstep());
  checkpoints_.finish();
  // Not before: a learner that is killed here is started again, and needs its actors if the last updates are lost.
  end_remote(finished());
  pass_on_warnings();
  folder_.save_policy(weights_to_safetensors(plan_.model, *current_weights(), plan_.env.id));
  if (const std::string remarks = learner_->remarks(); !remarks.empty()) folder_.log(remarks);
  if (!finished()) return;
  try {
    // A hook may have ended the run at an evaluation that was due.
    if (last_evaluation_ != learner_->version() || last_returns_.episodes == 0) evaluate_now();
    eval_return_ = last_returns_;
    evaluated_ = true;
  } catch (const Interrupted&) {  // a resumed run makes it
  }
}

void Trainer::run_lockstep() {
  Batch batch(static_cast<std::size_t>(plan_.config.learner.batch_size), plan_.transition());
  if (evaluation_due()) evaluate_now();  // the run was stopped during this one
  while (!finished() && !interrupted()) {
    if (!next_batch(batch)) break;
    update(batch);
    if (evaluation_due()) evaluate_now();
    if (checkpoint_due()) submit_checkpoint(true);
  }
}

// False where the run was to stop meanwhile.
bool Trainer::next_batch(Batch& batch) {
  if (hooks_.demonstrations) {
    set_scales();
    hooks_.demonstrations->sample(learner_->version(), batch);
    return true;
  }
  if (!collect(plan_.env_steps_due(learner_->version()))) return false;
  // One round at a time, so that an interruption changes nothing.
  while (replay_.size() == 0 && may_wait_for_groups(env_steps_)) {
    if (!collect(env_steps_ + 1)) return false;
  }
  if (!plan_.on_policy()) set_scales();
  if (!replay_.sample(batch)) throw RunError(why_empty(env_steps_, intake_.arrived()));
  return true;
}

bool Trainer::may_wait_for_groups(std::int64_t env_steps) const {
  return plan_.config.advantage.mode == AdvantageMode::kGroup && env_steps < plan_.total_env_steps();
}

std::string Trainer::why_empty(std::int64_t env_steps, const Intake::Arrived& arrived) const {
  const std::string text = fmt::format("the replay is empty after {} env steps: ", env_steps);
  if (plan_.config.advantage.mode != AdvantageMode::kGroup) return text + in_words(arrived.rejections);
  return text + fmt::format(
                    "as many as the whole run has, and {} groups of advantage.group_size = {} episodes were finished, "
                    "{} of them without variance; {} segments were rejected",
                    arrived.groups.all, plan_.config.advantage.group_size, arrived.groups.without_variance,
                    arrived.rejections.count);
}

// From all that the replay was ever given.
void Trainer::set_scales() {
  if (plan_.config.env.normalise_observations) {
    replay_.copy_moments(moments_);
    learner_->set_observation_scale(moments_);
  }
  if (plan_.config.env.normalise_rewards && !hooks_.demonstrations) {
    replay_.copy_returns(returns_);
    learner_->set_reward_scale(returns_);
  }
}

// Rounds of one step by every environment, until `due` steps have been taken. Actors do not meet between two reports,
// which are taken in their order: the number of threads cannot be seen in the result. In long collections they report
// on the way, which bounds what they hold; the run may stop there: false then.
bool Trainer::collect(std::int64_t due) {
  const auto per_round = static_cast<std::int64_t>(plan_.envs());
  if (env_steps_ >= due) return true;
  if (plan_.on_policy() && !collecting_) {
    // The scales hold still while a rollout is collected and learned from, so that the first pass is on-policy.
    set_scales();
    store_.publish(*learner_);
  }
  collecting_ = true;
  const std::shared_ptr<const Weights> weights = store_.get();
  while (collecting_) {
    if (interrupted() || stopped()) return false;
    const std::int64_t left = (due - env_steps_ + per_round - 1) / per_round,
                       rounds = std::min(left, plan_.rounds_between_drains());
    if (!collect_rounds(*weights, rounds, rounds == left)) return false;
    collecting_ = rounds < left;
    if (learner_->version() == 0) show_progress(0, nullptr);
  }
  return true;
}

// False where an environment was waited for when the run was to stop: what was finished is in the replay, and the actors
// cannot go on. Native tasks always finish their rounds.
bool Trainer::collect_rounds(const Weights& weights, std::int64_t rounds, bool last) {
  if (plan_.shared_workers) {
    step_together(weights, rounds, last);
  } else {
    step_apart(weights, rounds, last);
  }
  std::int64_t steps = 0;
  for (const auto& actor : actors_) {
    const ActorReport& report = actor->report();
    intake_.take(report);
    steps += report.steps;
  }
  env_steps_ += steps;
  take_arrived();
  tell_episodes();
  return steps == rounds * static_cast<std::int64_t>(plan_.envs());
}

void Trainer::step_apart(const Weights& weights, std::int64_t rounds, bool last) {
  const auto per_round = static_cast<std::int64_t>(plan_.envs());
  pool_.run(actors_.size(), [&](std::size_t i) {
    try {
      for (std::int64_t r = 0; r < rounds; ++r) actors_[i]->step(weights, env_steps_ + r * per_round);
      if (plan_.on_policy() && last) actors_[i]->cut(weights);
    } catch (const Interrupted&) {  // the steps tell
    } catch (...) {
      actors_stop_.request();  // the others need not wait for environments of theirs
      throw;
    }
  });
}

// Actors whose environments share processes: all processes work at once, for all actors.
void Trainer::step_together(const Weights& weights, std::int64_t rounds, bool last) {
  const auto per_round = static_cast<std::int64_t>(plan_.envs());
  try {
    for (std::int64_t r = 0; r < rounds; ++r) {
      for (const auto& actor : actors_) actor->begin_step(weights);
      for (const auto& actor : actors_) actor->finish_step(weights, env_steps_ + r * per_round);
    }
    for (const auto& actor : actors_) {
      if (plan_.on_policy() && last) actor->cut(weights);
    }
  } catch (const Interrupted&) {  // the steps tell
  }
}

void Trainer::update(const Batch& batch) {
  const std::int64_t next = learner_->version() + 1;
  const Config& c = plan_.config;
  const bool log = next % c.log_every() == 0 || next == c.learner.updates;
  learner_->stage(batch);
  learner_->begin_update({env_steps_, log && !plan_.clones()});
  if (next % plan_.config.learner.publish_every == 0) store_.publish(*learner_);
  if (log) log_update(learner_->figures());
}

std::shared_ptr<const Weights> Trainer::current_weights() const {
  std::shared_ptr<const Weights> published = store_.get();
  if (published->version == learner_->version()) return published;
  auto current = std::make_shared<Weights>();
  learner_->copy_weights(*current);
  return current;
}

void Trainer::log_update(const UpdateStats& stats) {
  pass_on_warnings();
  figures_.clear();
  if (hooks_.demonstrations) {
    append_likelihood(stats);
  } else {
    append_collection(stats);
  }
  folder_.metrics(learner_->version(), env_steps_, figures_, learner_->diagnostics());
  const auto gap = std::find_if(figures_.begin(), figures_.end(), [](const auto& f) { return f.first == "gap_mean"; });
  show_progress(gap == figures_.end() ? 0 : gap->second, &figures_);
}

void Trainer::append_likelihood(const UpdateStats& stats) {
  likelihood_->append_to(figures_, *current_weights());
  figures_.insert(figures_.end(), {{"entropy", stats.entropy},
                                   {"value_loss", stats.value_loss},
                                   {"explained_variance", stats.explained_variance},
                                   {"policy_grad_norm", stats.policy_grad_norm},
                                   {"value_grad_norm", stats.value_grad_norm},
                                   {"policy_lr", stats.policy_lr},
                                   {"value_lr", stats.value_lr},
                                   {"skipped_updates", static_cast<double>(learner_->skipped_updates())}});
}

void Trainer::append_collection(const UpdateStats& stats) {
  const ReturnStats recent = recent_returns();
  const double nan = std::numeric_limits<double>::quiet_NaN();
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
                                   {"rejected_segments", static_cast<double>(rejections_.count)}});
  if (plan_.config.advantage.mode == AdvantageMode::kGroup) {
    figures_.insert(figures_.end(), {{"groups", static_cast<double>(groups_.all)},
                                     {"groups_without_variance", static_cast<double>(groups_.without_variance)}});
  }
}

void Trainer::show_progress(double gap_mean, const Figures* figures) {
  if (!hooks_.progress) return;
  const ReturnStats recent = recent_returns();
  Progress p;
  p.update = learner_->version();
  p.updates = plan_.config.learner.updates;
  p.env_steps = env_steps_;
  p.total_env_steps = plan_.total_env_steps();
  p.episodes = episode_count_;
  p.warmup = plan_.warmup;
  p.recent_return = recent.episodes > 0 ? recent.mean : std::numeric_limits<double>::quiet_NaN();
  p.gap_mean = gap_mean;
  p.seconds = seconds();
  p.figures = figures;
  hooks_.progress(p);
}

void Trainer::take_arrived() {
  rejections_ = intake_.arrived().rejections;
  groups_ = intake_.arrived().groups;
  std::vector<Episode>& episodes = intake_.arrived().episodes;
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
  if (hooks_.episodes) untold_.insert(untold_.end(), episodes.begin(), episodes.end());
  if (!episodes.empty()) check_target();
  episodes.clear();
}

// Apart from taking them, which async does with the actors held off.
void Trainer::tell_episodes() {
  if (untold_.empty()) return;
  hooks_.episodes(untold_);
  untold_.clear();
}

// Once reached it stays reached, whatever the episodes bring that were under way.
void Trainer::check_target() {
  const Maybe<double> target = plan_.config.run.target_return;
  if (!target || solved() || recent_.size() < kRecentEpisodes) return;
  if (const double mean = recent_returns().mean; mean >= *target) solved_return_ = mean;
}

// The best evaluation is kept by checkpoints, so that a resumed run knows.
bool Trainer::solved() const {
  const Maybe<double> target = plan_.config.eval.target_return;
  return solved_return_.has_value() || (target && best_ && best_->returns.mean >= *target);
}

ReturnStats Trainer::recent_returns() const { return return_stats(recent_, recent_success_); }

EvalTask Trainer::eval_task(std::int64_t update) const {
  const Config& c = plan_.config;
  return {plan_.env,
          c.env,
          c.env_options,
          c.eval.episodes,
          derive_seed(static_cast<std::uint64_t>(c.run.seed), "evaluation", static_cast<std::uint64_t>(update)),
          true,
          &stop_,
          false,
          eval_device(plan_)};
}

bool Trainer::evaluation_due() const {
  const std::int64_t every = plan_.config.eval.every_updates;
  return every > 0 && learner_->version() % every == 0 && last_evaluation_ < learner_->version() && !finished();
}

void Trainer::evaluate_now() {
  const std::shared_ptr<const Weights> weights = current_weights();
  const Evaluation result = evaluate(plan_.model, *weights, eval_task(learner_->version()));
  log_evaluation(*weights, env_steps_, result);
}

// Of equals the first stays. A disk that is full keeps the file of before: the next better one is tried again.
bool Trainer::keep_best(const Weights& weights, std::int64_t env_steps, const ReturnStats& returns) {
  if (plan_.config.eval.every_updates == 0 || !std::isfinite(returns.mean)) return false;
  if (best_ && !(returns.mean > best_->returns.mean)) return false;
  const BestEvaluation best{weights.version, env_steps, returns};
  const auto file = std::make_shared<const std::string>(
      weights_to_safetensors(plan_.model, weights, plan_.env.id, metadata_of(best)));
  try {
    folder_.save_best(*file);
  } catch (const RunError& e) {
    warn(fmt::format("the policy of the best evaluation was not saved: {}", e.what()));
    return false;
  }
  best_ = best;
  best_file_ = file;
  return true;
}

void Trainer::log_evaluation(const Weights& weights, std::int64_t env_steps, const Evaluation& result) {
  const std::int64_t update = weights.version;
  folder_.evaluation(update, env_steps, result);
  last_evaluation_ = update;
  last_returns_ = result.returns;
  const bool best = keep_best(weights, env_steps, result.returns);
  tell_of_faults(update, result);
  if (hooks_.evaluation) hooks_.evaluation({weights, env_steps, result, best});
}

void Trainer::tell_of_faults(std::int64_t update, const Evaluation& result) {
  if (result.faults.empty()) return;
  std::uint64_t again = 0;
  for (const auto& [name, count] : result.faults) {
    eval_faults_[name] += count;
    again += count;
  }
  warn(fmt::format("{} episodes of the evaluation at update {} were played again; the last: {}", again, update,
                   result.last_fault));
}

RunSummary Trainer::summary(const std::string& ended) const {
  RunSummary s;
  s.ended = ended;
  s.env_steps = env_steps_;
  s.updates = learner_->version();
  s.episodes = episode_count_;
  s.skipped_updates = learner_->skipped_updates();
  Rejections all = rejections_;
  for (const auto& actor : actors_) all.add(actor->report().rejections);  // also those of a collection that failed
  s.rejected_segments = all.count;
  s.faults = all.by_name;
  s.eval_faults = eval_faults_;
  s.replay_size = replay_.size();
  s.replay_evicted = replay_.evicted();
  s.seconds = seconds();
  s.final_return = recent_returns();
  s.eval_return = eval_return_;
  s.best = best_;
  s.weights_fingerprint = checksum_of([&](ByteWriter& out) { learner_->save(out); });
  s.replay_fingerprint = replay_.fingerprint();
  return s;
}

}  // namespace gipo
