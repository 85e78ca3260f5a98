#include "gipo/doctor/doctor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>

#include "gipo/core/error.h"
#include "gipo/doctor/examination.h"
#include "gipo/io/json_text.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = 16 * 1024 * 1024, kMostDepth = 16;

// Whether a process holds the lock. A shared lock is tried and given back at once; nothing is created.
bool in_use(const std::string& lock_path) {
  const int descriptor = ::open(lock_path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool held = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return held;
}

}  // namespace

nlohmann::ordered_json parse_shallow(std::string_view text) {
  try {
    return parse_json<nlohmann::ordered_json>(text, "", {kMostBytes, kMostDepth});
  } catch (const Error&) {
    return nullptr;
  }
}

Diagnosis Examination::run() {
  busy_ = in_use(path("lock"));
  if (busy_) say(Health::kNote, "in use: a process is at work here, so files may change while they are checked");
  check_checkpoints();
  check_config();
  check_latest();
  check_temporaries();
  check_summary();
  read_metrics();
  read_episodes();
  read_evaluations();
  choose_checkpoint();
  for (const Log& log : logs_) tell(log);
  check_policy();
  check_counts();
  choose_next();
  return std::move(result_);
}

std::string Examination::checkpoint_name(std::int64_t update) {
  return fmt::format("{}/{:06}", kCheckpointFolder, update);
}

bool Examination::finished() const {
  const bool solved =
      ended_ == "solved" && (!plan_ || plan_->config.run.target_return || plan_->config.eval.target_return);
  const bool all_updates = ended_ == "finished" && last_update_ == summary_updates_ &&
                           (!plan_ || plan_->config.learner.updates <= summary_updates_);
  return (solved || all_updates) && last_evaluation_ == summary_updates_ &&
         (states_.empty() || states_.back().update <= summary_updates_);
}

void Examination::check_config() {
  if (!fs::exists(path("config.toml"))) return say(Health::kDamaged, "config.toml: missing");
  try {
    const LoadedConfig loaded = load_config(path("config.toml"));
    plan_ = plan_with_dial_of(loaded, states_.empty() ? loaded.config.learner.updates : states_.back().dial_updates);
    const Config& c = plan_->config;
    say(Health::kGood, fmt::format("config.toml: {}, {}, seed {}, {}, {} updates", c.env.id, c.surrogate.name,
                                   c.run.seed, word_of(c.run.mode), c.learner.updates));
  } catch (const std::exception& e) {
    return say(Health::kDamaged, fmt::format("config.toml: {}", e.what()));
  }
  if (states_.empty()) return;
  try {
    refuse_changes(parse_config(states_.back().config, "the checkpoint's config").config, plan_->config, "config.toml");
  } catch (const Error& e) {
    refused_ = e.what();
    say(Health::kDamaged, refused_);
  }
}

void Examination::check_summary() {
  if (!fs::exists(path("summary.json"))) {
    return say(Health::kNote, busy_ ? "summary.json: not there yet" : "summary.json: missing: the run did not end");
  }
  try {
    const Json summary = parse_shallow(read_file(path("summary.json")));
    if (!summary.is_object()) throw Error("not a JSON object");
    ended_ = summary.at("ended").get<std::string>();
    summary_updates_ = summary.at("updates").get<std::int64_t>();
    say(ended_.starts_with("failed") ? Health::kNote : Health::kGood,
        fmt::format("summary.json: {} after {} updates", ended_, summary_updates_));
  } catch (const std::exception& e) {
    say(Health::kDamaged, fmt::format("summary.json: {}", e.what()));
  }
}

void Examination::check_policy() {
  if (!fs::exists(path(kPolicyFile))) {
    const bool wanted = !ended_.empty() && !busy_;
    return say(wanted ? Health::kDamaged : Health::kNote,
               fmt::format("{}: {}", kPolicyFile, wanted ? "missing" : "not there yet; a run saves it when it ends"));
  }
  if (!plan_) return say(Health::kNote, fmt::format("{}: not checked without a config", kPolicyFile));
  try {
    const Weights w = weights_from_safetensors(plan_->model, read_file(path(kPolicyFile)), kPolicyFile);
    const auto finite = [](std::span<const float> v) {
      return std::all_of(v.begin(), v.end(), [](float x) { return std::isfinite(x); });
    };
    if (!finite(w.policy) || !finite(w.critic) || !finite(w.scale.mean) || !finite(w.scale.inverse_std) ||
        std::isnan(w.scale.limit)) {
      throw Error(fmt::format("{}: it holds numbers that are not finite", kPolicyFile));
    }
    say(Health::kGood, fmt::format("{}: of update {}, all numbers finite", kPolicyFile, w.version));
  } catch (const Error& e) {
    say(Health::kDamaged, e.what());
  }
}

// A count in the last line of metrics.jsonl.
double Examination::count_of(const char* name) const {
  if (!last_metrics_.is_object()) return 0;
  const auto it = last_metrics_.find(name);
  return it != last_metrics_.end() && it->is_number() ? it->get<double>() : 0;
}

void Examination::check_counts() {
  if (const double n = count_of("skipped_updates"); n > 0) {
    say(Health::kNote, fmt::format("skipped_updates = {}: updates whose loss or gradient was not finite", n));
  }
  if (const double n = count_of("rejected_segments"); n > 0) {
    say(Health::kNote,
        fmt::format(
            "rejected_segments = {}: segments whose environment broke down or gave numbers that were not finite", n));
  }
}

void Examination::choose_next() {
  std::string& next = result_.next;
  if (busy_) {
    next = "nothing, while the process at work here goes on";
  } else if (!plan_) {
    next = states_.empty() ? "mend config.toml; without it and without a checkpoint nothing can be done with this run"
                           : fmt::format("mend config.toml: {}/state.json holds it as the text \"config\"",
                                         checkpoint_name(states_.back().update));
  } else if (!refused_.empty()) {
    next = fmt::format("set that option back in config.toml, then: gipo resume {}", run_);
  } else if (usable_) {
    next = next_with_checkpoint();
  } else if (!not_renamed_.empty()) {
    say(Health::kDamaged, "no checkpoint to resume from but one that was not renamed any more");
    const std::string name = not_renamed_.substr(0, not_renamed_.rfind('.'));
    next = fmt::format("rename {} to {}, then: gipo resume {}", path(not_renamed_), path(name), run_);
  } else if (finished()) {
    next = "nothing; without a checkpoint the run cannot be lengthened";
  } else {
    say(Health::kDamaged, "no checkpoint to resume from");
    next = fmt::format("begin again: gipo train {}/config.toml --name NAME", run_);
  }
}

std::string Examination::next_with_checkpoint() const {
  std::string resume = "gipo resume " + run_;
  if (!refused_by_resume_.empty() && *refused_by_resume_.rbegin() > usable_->update) {
    resume = fmt::format("move all checkpoints newer than {} away, then: {}", checkpoint_name(usable_->update), resume);
  }
  if (lines_lost_ && clean_) {
    return fmt::format("move all checkpoints newer than {} away, then: {}, which writes the faulty lines anew",
                       checkpoint_name(clean_->update), resume);
  }
  if (finished() && !result_.damaged()) return fmt::format("nothing; to lengthen the run: {} --updates N", resume);
  if (finished() && lines_lost_) return "nothing brings the faulty lines back; the rest is as said above";
  if (finished() && !damaged_.empty() && *damaged_.rbegin() < usable_->update) {
    return fmt::format("remove {}, which nothing needs", path(checkpoint_name(*damaged_.begin())));
  }
  return ended_.starts_with("failed") ? "see why it failed, above; then: " + resume : resume;
}

bool Diagnosis::damaged() const {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.health == Health::kDamaged; });
}

Diagnosis examine(const std::string& run_dir) {
  if (!fs::is_directory(run_dir)) throw Error(fmt::format("{}: no such run folder", run_dir));
  const auto has = [&](const std::string& name) { return fs::exists(run_dir + "/" + name); };
  if (!has("config.toml") && !has("metrics.jsonl") && !has(kCheckpointFolder)) {
    throw Error(
        fmt::format("{}: not a run folder: no config.toml, no metrics.jsonl, no {}", run_dir, kCheckpointFolder));
  }
  return Examination(run_dir).run();
}

}  // namespace gipo
