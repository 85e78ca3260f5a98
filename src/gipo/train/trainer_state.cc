// What a checkpoint holds of a run, and how a run takes it up again. docs/checkpoints.md describes every file.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "gipo/core/bytes.h"
#include "gipo/core/error.h"
#include "gipo/train/trainer.h"
#include "gipo/train/version.h"

namespace gipo {
namespace {

using Json = nlohmann::ordered_json;

const std::string& file_of(const Checkpoint& checkpoint, const std::string& name) {
  const auto it = checkpoint.files.find(name);
  if (it == checkpoint.files.end()) throw Error(fmt::format("checkpoint {}: it has no {}", checkpoint.update, name));
  return it->second;
}

// Runs f over the bytes of one file; all of them must be read.
template <class F>
void load_file(const Checkpoint& checkpoint, const std::string& name, F&& f) {
  ByteReader in(file_of(checkpoint, name));
  try {
    f(in);
  } catch (const Error& e) {
    throw Error(fmt::format("checkpoint {}: {}: {}", checkpoint.update, name, e.what()));
  }
  if (in.left() > 0) throw Error(fmt::format("checkpoint {}: {} is too long", checkpoint.update, name));
}

}  // namespace

Checkpoint Trainer::make_checkpoint() {
  folder_.flush();
  Checkpoint checkpoint;
  checkpoint.update = learner_->version();
  checkpoint.files["weights.safetensors"] = weights_to_safetensors(plan_.model, *store_.get(), plan_.env.id);
  ByteWriter out;
  learner_->save(out);
  checkpoint.files["learner.bin"] = out.take();
  out.reserve(plan_.replay_bytes() + plan_.replay_bytes() / 4);
  replay_.save(out);
  checkpoint.files["replay.bin"] = out.take();
  // The actors of an async run are on their way: their open segments are what such a run loses.
  if (plan_.config.run.mode == "lockstep") {
    for (const auto& actor : actors_) actor->save(out);
    checkpoint.files["actors.bin"] = out.take();
  }
  Json recent = Json::array();
  for (const double r : recent_) recent.push_back(std::isfinite(r) ? Json(r) : Json(nullptr));
  const Json state = {{"gipo_version", version()},
                      {"commit", commit()},
                      {"config", config_to_toml(plan_.config)},
                      {"update", learner_->version()},
                      {"env_steps", env_steps_},
                      {"episodes", episode_count_},
                      {"rejected_segments", rejected_},
                      {"faults", faults_},
                      {"engine", plan_.env.engine},
                      {"recent_returns", recent},
                      {"seconds", seconds()},
                      {"incarnation", incarnation_},
                      {"dial",
                       {{"capacity", plan_.capacity},
                        {"env_steps_per_update", plan_.env_steps_per_update},
                        {"window", plan_.window},
                        {"t_old", plan_.t_old},
                        {"warmup", plan_.warmup},
                        {"updates_per_rollout", plan_.updates_per_rollout}}},
                      {"logs", folder_.positions()}};
  checkpoint.files["state.json"] = state.dump(2) + "\n";
  return checkpoint;
}

void Trainer::restore(const Checkpoint& checkpoint) {
  load_file(checkpoint, "learner.bin", [&](ByteReader& in) { learner_->load(in); });
  load_file(checkpoint, "replay.bin", [&](ByteReader& in) { replay_.load(in); });
  try {
    const Json state = Json::parse(file_of(checkpoint, "state.json"));
    env_steps_ = state.at("env_steps").get<std::int64_t>();
    episode_count_ = state.at("episodes").get<std::int64_t>();
    rejected_ = state.at("rejected_segments").get<std::uint64_t>();
    faults_ = state.value("faults", FaultCounts());
    seconds_before_ = state.at("seconds").get<double>();
    incarnation_ = state.at("incarnation").get<std::uint64_t>() + 1;
    recent_.clear();
    for (const Json& r : state.at("recent_returns")) {
      recent_.push_back(r.is_number() ? r.get<double>() : std::numeric_limits<double>::quiet_NaN());
    }
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("checkpoint {}: state.json: {}", checkpoint.update, e.what()));
  }
  if (plan_.config.run.mode == "lockstep") {
    load_file(checkpoint, "actors.bin", [&](ByteReader& in) {
      for (const auto& actor : actors_) actor->load(in);
    });
  } else {
    actors_.clear();
    for (std::size_t i = 0; i < plan_.actors; ++i) actors_.push_back(std::make_unique<Actor>(plan_, i, incarnation_));
  }
  store_.publish(*learner_);
  folder_.log(fmt::format("resumed at update {}, {} env steps", learner_->version(), env_steps_));
}

void Trainer::checkpoint_if_due() {
  const CheckpointOptions& o = plan_.config.checkpoint;
  const bool by_updates = o.every_updates > 0 && learner_->version() % o.every_updates == 0;
  const bool by_time = o.every_minutes > 0 && seconds() - checkpoint_seconds_ >= 60 * o.every_minutes;
  if (finished() || (!by_updates && !by_time)) return;
  submit_checkpoint();
  pass_on_warnings();
}

// A log that cannot be written is a checkpoint that cannot be resumed from: the one before stays.
void Trainer::submit_checkpoint() {
  checkpoint_seconds_ = seconds();
  try {
    checkpoints_.submit(make_checkpoint());
  } catch (const RunError& e) {
    const std::string text = fmt::format("checkpoint {} was not written: {}", learner_->version(), e.what());
    folder_.log("warning: " + text);
    if (hooks_.warn) hooks_.warn(text);
  }
}

void Trainer::pass_on_warnings() {
  std::vector<std::string> all = checkpoints_.take_warnings();
  if (rejected_ > rejected_told_) {
    all.push_back(fmt::format("{} segments rejected so far; the last: {}", rejected_, last_fault_));
    // Told at 1, 2, 4, 8, ...: enough to see, too few to drown the rest.
    rejected_told_ = 2 * rejected_;
  }
  for (const std::string& warning : all) folder_.log("warning: " + warning);
  for (std::string& warning : folder_.take_warnings()) all.push_back(std::move(warning));
  if (!hooks_.warn) return;
  for (const std::string& warning : all) hooks_.warn(warning);
}

}  // namespace gipo
