// What a checkpoint holds of a run, and how a run takes it up again. docs/checkpoints.md describes every file.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/plan/option_table.h"
#include "gipo/replay/replay_snapshot.h"
#include "gipo/run/state_fields.h"
#include "gipo/run/version.h"
#include "gipo/train/remote_actors.h"
#include "gipo/train/trainer.h"

namespace gipo {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLearner = "learner.safetensors";
constexpr const char* kPublished = "published.bin";  // the weights that actors have, where those are older
constexpr const char* kActors = "actors.bin";
constexpr const char* kEpisodes = "episodes.bin";  // in its place where the actors are not saved
constexpr const char* kTaken = "taken.bin";        // the last report of each actor, where those are remote
constexpr std::int64_t kMostCount = std::int64_t{1} << 62;

Json to_json(const BestEvaluation& best) {
  const auto or_null = [](const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); };
  return {{"update", best.update},
          {"env_steps", best.env_steps},
          {"mean", best.returns.mean},
          {"std", best.returns.std},
          {"episodes", best.returns.episodes},
          {"success_rate", or_null(best.returns.success_rate)},
          {"success_rate_last", or_null(best.returns.success_rate_last)}};
}

}  // namespace

Checkpoint Trainer::make_checkpoint(bool with_actors) {
  with_actors = with_actors && plan_.env.saves_state && !hooks_.demonstrations;
  folder_.flush();
  Checkpoint checkpoint;
  checkpoint.update = learner_->version();
  // Read where they are: a snapshot of weights does not change, and the learner waits until it is written, or before it would
  // change what is being written.
  checkpoint.streams[kWeightsFile] = [this, weights = current_weights()](ByteWriter& out) {
    write_weights(plan_.model, *weights, plan_.env.id, out);
  };
  if (best_file_) checkpoint.streams[kBestFile] = [file = best_file_](ByteWriter& out) { out.append(*file); };
  if (auto snapshot = learner_->snapshot()) {
    checkpoint.streams[kLearner] = std::move(snapshot);
  } else {
    checkpoint.still[kLearner] = [this](ByteWriter& out) { learner_->save(out); };
  }
  if (plan_.config.learner.publish_every > 1) {
    checkpoint.streams[kPublished] = [weights = store_.get()](ByteWriter& out) { weights->save(out); };
  }
  // As it is now, though it is written while training goes on.
  checkpoint.streams["replay.bin"] = [replay = std::shared_ptr<ReplaySnapshot>(replay_.snapshot())](ByteWriter& file) {
    replay->save(file);
  };
  checkpoint.files[with_actors ? kActors : kEpisodes] = bytes_of([&](ByteWriter& out) {
    if (!with_actors) return out.array(next_episode_);
    for (const auto& actor : actors_) actor->save(out);
  });
  if (hooks_.remote) {
    checkpoint.files[kTaken] = bytes_of([&](ByteWriter& out) { intake_.taken().save(out); });
    checkpoint.written = [remote = hooks_.remote, taken = intake_.taken().marks()] { remote->saved(taken); };
  }
  const LogPositions positions = folder_.positions();
  for (const auto& [name, bytes] : positions) checkpoint.logs.push_back(folder_.path() + "/" + name);
  Json recent = Json::array();
  for (const double r : recent_) recent.push_back(std::isfinite(r) ? Json(r) : Json(nullptr));
  Json success = Json::array();
  for (const Success& s : recent_success_) success.push_back(s.known ? Json({s.ever, s.last}) : Json(nullptr));
  Json state = {{"gipo_version", version()},
                {"commit", commit()},
                {"config", config_to_toml(plan_.config)},
                {"update", learner_->version()},
                {"env_steps", env_steps_},
                {"episodes", episode_count_},
                {"collecting", collecting_},
                {"rejected_segments", rejections_.count},
                {"last_evaluation", last_evaluation_},
                {"faults", rejections_.by_name},
                {"eval_faults", eval_faults_},
                {"solved_return", solved_return_ ? Json(*solved_return_) : Json(nullptr)},
                {"engine", plan_.env.engine},
                {"recent_returns", recent},
                {"recent_success", success},
                {"seconds", seconds()},
                {"incarnation", hooks_.remote ? hooks_.remote->incarnation() : incarnation_},
                {"dial",
                 {{"updates", plan_.dial_updates},
                  {"capacity", plan_.capacity},
                  {"env_steps_per_update", plan_.env_steps_per_update},
                  {"window", plan_.window},
                  {"t_old", plan_.t_old},
                  {"warmup", plan_.warmup},
                  {"updates_per_rollout", plan_.updates_per_rollout}}},
                {"best", best_ ? to_json(*best_) : Json(nullptr)},
                {"logs", positions}};
  if (plan_.config.advantage.mode == AdvantageMode::kGroup) {
    state["groups"] = {groups_.all, groups_.without_variance};
  }
  if (hooks_.demonstrations) state["demonstrations"] = hooks_.demonstrations->fingerprint();
  checkpoint.files["state.json"] = state.dump(2) + "\n";
  return checkpoint;
}

void Trainer::restore(const Checkpoint& checkpoint) {
  checkpoint.load(kLearner, [&](ByteReader& in) { learner_->load(in); });
  checkpoint.load("replay.bin", [&](ByteReader& in) { replay_.load(in); });
  try {
    const auto text = checkpoint.files.find("state.json");
    if (text == checkpoint.files.end())
      throw Error(fmt::format("checkpoint {}: it has no state.json", checkpoint.update));
    const nlohmann::json state = parse_state(text->second);
    read_whole(state, "update", learner_->version(), learner_->version());
    if (const Demonstrations* d = hooks_.demonstrations; d && state.at("demonstrations") != d->fingerprint()) {
      throw Error(
          fmt::format("{}: the run began with other demonstrations than the file now has", plan_.config.clone.data));
    }
    env_steps_ = read_whole(state, "env_steps", 0, kMostCount);
    episode_count_ = read_whole(state, "episodes", 0, kMostCount);
    collecting_ = state.value("collecting", false);
    rejections_.count = static_cast<std::uint64_t>(read_whole(state, "rejected_segments", 0, kMostCount));
    last_evaluation_ = read_whole(state, "last_evaluation", 0, learner_->version());
    seconds_before_ = read_real(state, "seconds", 0, 1e15);
    checkpoint_seconds_ = seconds();
    incarnation_ = static_cast<std::uint64_t>(read_whole(state, "incarnation", 0, kMostCount)) + 1;
    rejections_.by_name = state.value("faults", FaultCounts());
    intake_.arrived().rejections = rejections_;
    if (plan_.config.advantage.mode == AdvantageMode::kGroup) {
      const auto groups = state.at("groups").get<std::array<std::uint64_t, 2>>();
      intake_.arrived().groups = groups_ = {groups[0], groups[1]};
    }
    eval_faults_ = state.value("eval_faults", FaultCounts());
    recent_.clear();
    for (const nlohmann::json& r : state.at("recent_returns")) {
      recent_.push_back(r.is_number() ? r.get<double>() : std::numeric_limits<double>::quiet_NaN());
    }
    const auto due = std::min<std::int64_t>(episode_count_, kRecentEpisodes);
    if (std::ssize(recent_) != due)
      throw Error(fmt::format("recent_returns has {} values, not {}", recent_.size(), due));
    recent_success_.assign(recent_.size(), {});
    const nlohmann::json success = state.value("recent_success", nlohmann::json::array());
    for (std::size_t i = 0; i < std::min(success.size(), recent_.size()); ++i) {
      if (success[i].is_null()) continue;
      recent_success_[i] = {true, success[i].at(0).get<bool>(), success[i].at(1).get<bool>()};
    }
    // The target may be another by now.
    const Maybe<double> target = plan_.config.run.target_return;
    const nlohmann::json& solved = state.at("solved_return");
    if (target && solved.is_number() && solved.get<double>() >= *target) solved_return_ = solved.get<double>();
    check_target();
    restore_best(checkpoint, state);
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("checkpoint {}: state.json: {}", checkpoint.update, e.what()));
  }
  if (lockstep() && checkpoint.has(kActors)) {
    checkpoint.load(kActors, [&](ByteReader& in) {
      for (const auto& actor : actors_) actor->load(in);
    });
    for (std::size_t i = 0; i < next_episode_.size(); ++i) {
      next_episode_[i] = actors_[i / plan_.envs_per_actor]->episode(i % plan_.envs_per_actor);
    }
  } else {
    restart_actors(checkpoint);
  }
  store_.publish(*learner_);
  if (checkpoint.has(kPublished)) {
    Weights published = *store_.get();
    checkpoint.load(kPublished, [&](ByteReader& in) { published.load(in); });
    store_.publish(std::move(published));
  }
  folder_.log(fmt::format("resumed at update {}, {} env steps", learner_->version(), env_steps_));
}

// The file in the run folder may be of an evaluation that comes after the checkpoint: it is cut back as the logs are.
void Trainer::restore_best(const Checkpoint& checkpoint, const nlohmann::json& state) {
  best_.reset();
  best_file_.reset();
  if (const auto it = state.find("best"); it != state.end() && !it->is_null()) {
    const auto rate = [&](const char* key) {
      return it->at(key).is_null() ? std::nullopt : std::optional(read_real(*it, key, 0, 1));
    };
    constexpr double kMost = std::numeric_limits<double>::max();
    best_ = {read_whole(*it, "update", 0, learner_->version()), read_whole(*it, "env_steps", 0, env_steps_),
             ReturnStats{read_real(*it, "mean", -kMost, kMost), read_real(*it, "std", 0, kMost),
                         read_whole(*it, "episodes", 1, kMostCount), rate("success_rate"), rate("success_rate_last")}};
    std::string file;
    checkpoint.load(kBestFile, [&](ByteReader& in) {
      file.resize(in.left());
      in.bytes_into(std::span<char>(file));
    });
    best_file_ = std::make_shared<const std::string>(std::move(file));
    if (best_->update == last_evaluation_) last_returns_ = best_->returns;
  }
  folder_.save_best(best_file_ ? *best_file_ : std::string());
}

// New episodes, from random streams of their own; only the numbering goes on.
void Trainer::restart_actors(const Checkpoint& checkpoint) {
  checkpoint.load(kEpisodes, [&](ByteReader& in) { in.array_into(std::span<std::int64_t>(next_episode_)); });
  for (const std::int64_t n : next_episode_) {
    if (n < 0 || n > kMostCount) throw Error(fmt::format("checkpoint {}: {} is damaged", checkpoint.update, kEpisodes));
  }
  if (hooks_.remote && checkpoint.has(kTaken)) {
    checkpoint.load(kTaken, [&](ByteReader& in) { intake_.taken().load(in); });
  } else {
    intake_.pass_over_before(incarnation_);
  }
  actors_.clear();
  make_actors(incarnation_, next_episode_);
}

bool Trainer::checkpoint_due() {
  const CheckpointOptions& o = plan_.config.checkpoint;
  if (o.every_updates > 0 && learner_->version() % o.every_updates == 0) checkpoint_due_ = true;
  if (o.every_minutes > 0 && seconds() - checkpoint_seconds_ >= 60 * o.every_minutes) checkpoint_due_ = true;
  // One that falls due while another is being written waits for it: copies of two are never held.
  return checkpoint_due_ && !finished() && checkpoints_.idle();
}

// A log that cannot be written is a checkpoint that cannot be resumed from: the one before stays.
void Trainer::submit_checkpoint(bool with_actors) {
  checkpoint_seconds_ = seconds();
  checkpoint_due_ = false;
  try {
    checkpoints_.finish();
    checkpoints_.submit(make_checkpoint(with_actors));
  } catch (const RunError& e) {
    warn(fmt::format("checkpoint {} was not written: {}", learner_->version(), e.what()));
  }
}

void Trainer::warn(const std::string& text) {
  folder_.log("warning: " + text);
  if (hooks_.warn) hooks_.warn(text);
}

void Trainer::pass_on_warnings() {
  std::vector<std::string> all = checkpoints_.take_warnings();
  if (rejections_.count > rejected_told_) {
    all.push_back(fmt::format("{} segments rejected so far; the last: {}", rejections_.count, rejections_.last));
    // Told at 1, 2, 4, 8, ...: enough to see, too few to drown the rest.
    rejected_told_ = 2 * rejections_.count;
  }
  for (const std::string& warning : all) folder_.log("warning: " + warning);
  for (std::string& warning : folder_.take_warnings()) all.push_back(std::move(warning));
  if (!hooks_.warn) return;
  for (const std::string& warning : all) hooks_.warn(warning);
}

}  // namespace gipo
