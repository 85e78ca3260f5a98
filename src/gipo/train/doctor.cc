#include "gipo/train/doctor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "gipo/core/error.h"
#include "gipo/train/resume.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMostTold = 3;  // faults of one log
constexpr int kMostDepth = 16;

std::optional<std::uint64_t> size_of_file(const std::string& path) {
  std::error_code failed;
  const auto size = fs::file_size(path, failed);
  return failed ? std::nullopt : std::optional<std::uint64_t>(size);
}

// Nothing of ours is nested deeply; copying what is would take the stack with it. Discarded where it is not JSON.
Json parse_json(std::string_view text) {
  return Json::parse(
      text, [](int depth, Json::parse_event_t, const Json&) { return depth <= kMostDepth; }, false);
}

// Whether a process holds the lock. A shared lock is tried and given back at once; nothing is created.
bool in_use(const std::string& lock_path) {
  const int descriptor = ::open(lock_path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool held = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return held;
}

// What a whole checkpoint says of the run; its large files are not kept.
struct State {
  std::int64_t update = 0, updates = 0, log_every = 0;  // done; of the whole run; between lines
  std::uint64_t incarnation = 0, rejected = 0;
  std::string config;
  LogPositions logs;
};

class Examination {
 public:
  explicit Examination(const std::string& run) : run_(run) {}

  Diagnosis run() {
    busy_ = in_use(path("lock"));
    if (busy_) say(Health::kNote, "in use: a process is at work here, so files may change while they are checked");
    check_config();
    check_checkpoints();
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

 private:
  struct Fault {
    std::uint64_t offset = 0;  // of its line, in bytes
    std::string text;
  };
  struct Log {  // a file of JSON lines, as it was found
    std::string name, good;
    std::int64_t lines = 0;
    std::vector<Fault> faults;
  };
  // Takes a line's object; returns what is wrong with it, or nothing.
  using LineCheck = std::function<std::string(const Json&)>;

  std::string path(const std::string& name) const { return run_ + "/" + name; }
  void say(Health health, std::string text) { result_.findings.push_back({health, std::move(text)}); }
  std::string checkpoint_name(std::int64_t update) const { return fmt::format("{}/{:06}", kCheckpointFolder, update); }
  // Nothing was done since the summary was written, and nothing more is asked for.
  bool finished() const {
    return ended_ == "finished" && last_update_ == summary_updates_ && last_evaluation_ == summary_updates_ &&
           (states_.empty() || states_.back().update <= summary_updates_) &&
           (!plan_ || plan_->config.learner.updates <= summary_updates_);
  }

  void check_config();
  void check_checkpoints();
  void check_latest();
  void check_temporaries();
  bool holds_newest(const std::string& name) const;
  void check_summary();
  Log read_lines(const std::string& name, const LineCheck& check) const;
  void read_metrics();
  void read_episodes();
  void read_evaluations();
  bool usual_step(std::int64_t from, std::int64_t to) const;
  void choose_checkpoint();
  std::string why_not(const State& state) const;
  bool clean(const State& state) const;
  void tell(const Log& log);
  void check_policy();
  void check_counts();
  void choose_next();
  std::string next_with_checkpoint() const;
  double count_of(const char* name) const;
  std::string how_to_resume(const State& from) const;

  const std::string run_;
  Diagnosis result_;
  bool busy_ = false;
  std::optional<Plan> plan_;
  std::vector<State> states_;       // whole checkpoints, oldest first
  std::set<std::int64_t> damaged_;  // checkpoints that are not whole
  std::vector<Log> logs_;
  const State* usable_ = nullptr;      // the newest whole one that the logs reach
  const State* clean_ = nullptr;       // the same, with no fault in the logs before it
  bool lines_lost_ = false;            // a fault before usable_, or in a run that has finished
  std::string refused_;                // why the config does not go with the newest checkpoint
  std::string ended_;                  // from summary.json; empty without it
  std::int64_t summary_updates_ = -1;  // from summary.json
  std::int64_t last_update_ = 0;       // of metrics.jsonl
  std::int64_t last_evaluation_ = 0;   // of evaluations.jsonl; a run that finishes makes one
  std::string not_renamed_;            // a temporary folder that holds a whole checkpoint, the newest
  Json last_metrics_;
};

void Examination::check_config() {
  if (!fs::exists(path("config.toml"))) return say(Health::kDamaged, "config.toml: missing");
  try {
    plan_ = make_plan(load_config(path("config.toml")));
    const Config& c = plan_->config;
    say(Health::kGood, fmt::format("config.toml: {}, {}, seed {}, {}, {} updates", c.env.id, c.surrogate.name,
                                   c.run.seed, c.run.mode, c.learner.updates));
  } catch (const std::exception& e) {
    say(Health::kDamaged, fmt::format("config.toml: {}", e.what()));
  }
}

void Examination::check_checkpoints() {
  const std::string folder = path(kCheckpointFolder);
  std::vector<std::int64_t> without_manifest;
  for (const std::int64_t number : list_checkpoints(folder)) {
    const std::string name = checkpoint_name(number);
    if (fs::is_directory(path(name)) && !fs::exists(path(name + "/manifest.json"))) {
      without_manifest.push_back(number);
      continue;
    }
    try {
      const Checkpoint checkpoint = read_checkpoint(path(name));
      if (checkpoint.update != number) throw Error("it is the checkpoint of another update");
      std::size_t bytes = 0;
      for (const auto& [file, content] : checkpoint.files) bytes += content.size();
      const auto text = checkpoint.files.find("state.json");
      if (text == checkpoint.files.end()) throw Error("it has no state.json");
      const Json state = parse_json(text->second);
      State s;
      s.update = number;
      s.config = state.at("config").get<std::string>();
      const Config then = parse_config(s.config, "its config").config;
      s.updates = then.learner.updates;
      s.log_every = then.log.every_updates;
      s.incarnation = state.at("incarnation").get<std::uint64_t>();
      s.rejected = state.at("rejected_segments").get<std::uint64_t>();
      s.logs = state.at("logs").get<LogPositions>();
      states_.push_back(std::move(s));
      say(Health::kGood, fmt::format("{}: whole, {} files, {} bytes", name, checkpoint.files.size(), bytes));
    } catch (const std::exception& e) {
      // A process that is at work removes old ones and may have done so just now.
      if (busy_ && !fs::exists(path(name))) continue;
      damaged_.insert(number);
      std::string why = e.what();
      if (why.starts_with(path(name) + ": ")) why.erase(0, path(name).size() + 2);
      say(busy_ ? Health::kNote : Health::kDamaged, fmt::format("{}: not whole: {}", name, why));
    }
  }
  // Old ones are removed with their manifest first, so that a process that was killed may leave such a rest.
  for (const std::int64_t number : without_manifest) {
    const bool old = !states_.empty() && number < states_.back().update;
    if (!old) damaged_.insert(number);
    say(old || busy_ ? Health::kNote : Health::kDamaged,
        checkpoint_name(number) +
            (old ? ": half removed; the next checkpoint removes the rest" : ": no manifest.json"));
  }
  if (states_.empty() || !plan_) return;
  try {
    refuse_changes(parse_config(states_.back().config, "the checkpoint's config").config, plan_->config, "config.toml");
  } catch (const Error& e) {
    refused_ = e.what();
    say(Health::kDamaged, refused_);
  }
}

void Examination::check_latest() {
  const std::string file = fmt::format("{}/LATEST", kCheckpointFolder);
  if (!fs::exists(path(file))) {
    if (!states_.empty()) say(Health::kNote, file + ": missing; resume does not need it");
    return;
  }
  std::string name;
  try {
    name = read_file(path(file));
  } catch (const Error& e) {
    return say(Health::kDamaged, e.what());
  }
  const auto named = [&](const State& s) { return name == fmt::format("{:06}\n", s.update); };
  const auto it = std::find_if(states_.begin(), states_.end(), named);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  if (it == states_.end()) {
    say(busy_ ? Health::kNote : Health::kDamaged,
        fmt::format("{}: names {}, which is not a whole checkpoint", file, name.substr(0, 40)));
  } else if (it + 1 != states_.end()) {
    say(Health::kNote, fmt::format("{}: names {}, though {:06} is newer and whole; resume takes the newer one", file,
                                   name, states_.back().update));
  } else {
    say(Health::kGood, fmt::format("{}: names {}, the newest whole checkpoint", file, name));
  }
}

void Examination::check_temporaries() {
  for (const std::string& folder : {std::string(), std::string(kCheckpointFolder) + "/"}) {
    std::error_code failed;
    std::vector<std::string> names;
    for (fs::directory_iterator it(path(folder), failed), end; !failed && it != end; it.increment(failed)) {
      if (it->path().extension() == ".tmp") names.push_back(folder + it->path().filename().string());
    }
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      if (busy_) {
        say(Health::kNote, name + ": being written");
      } else if (holds_newest(name)) {
        not_renamed_ = name;
        say(Health::kNote, name + ": a whole checkpoint, newer than all others, that was not renamed any more");
      } else {
        say(Health::kNote, name + ": left by a write that was cut off; may be removed");
      }
    }
  }
}

// Whether a temporary folder is a checkpoint that lacks nothing but its name.
bool Examination::holds_newest(const std::string& name) const {
  try {
    const Checkpoint checkpoint = read_checkpoint(path(name));
    return name == checkpoint_name(checkpoint.update) + ".tmp" &&
           (states_.empty() || states_.back().update < checkpoint.update);
  } catch (const Error&) {
    return false;
  }
}

void Examination::check_summary() {
  if (!fs::exists(path("summary.json"))) {
    return say(Health::kNote, busy_ ? "summary.json: not there yet" : "summary.json: missing: the run did not end");
  }
  try {
    const Json summary = parse_json(read_file(path("summary.json")));
    if (!summary.is_object()) throw Error("not a JSON object");
    ended_ = summary.at("ended").get<std::string>();
    summary_updates_ = summary.at("updates").get<std::int64_t>();
    say(ended_.starts_with("failed") ? Health::kNote : Health::kGood,
        fmt::format("summary.json: {} after {} updates", ended_, summary_updates_));
  } catch (const std::exception& e) {
    say(Health::kDamaged, fmt::format("summary.json: {}", e.what()));
  }
}

// Why the run cannot be resumed from a whole checkpoint: its logs are not what they were when it was made.
std::string Examination::why_not(const State& state) const {
  for (const auto& [name, position] : state.logs) {
    const std::uint64_t size = size_of_file(path(name)).value_or(0);
    if (size < position) {
      return fmt::format("{} has {} bytes, and had {} at {}", name, size, position, checkpoint_name(state.update));
    }
    if (position == 0 || !name.ends_with(".jsonl")) continue;
    std::ifstream in(path(name), std::ios::binary);
    in.seekg(static_cast<std::streamoff>(position - 1));
    if (in.get() != '\n')
      return fmt::format("{} was changed: {} ends inside a line", name, checkpoint_name(state.update));
  }
  return {};
}

bool Examination::clean(const State& state) const {
  return std::all_of(logs_.begin(), logs_.end(), [&](const Log& log) {
    const auto position = state.logs.find(log.name);
    return log.faults.empty() || position == state.logs.end() || log.faults.front().offset >= position->second;
  });
}

void Examination::choose_checkpoint() {
  for (auto it = states_.rbegin(); it != states_.rend() && !clean_; ++it) {
    const std::string why = why_not(*it);
    if (!why.empty() && it == states_.rbegin())
      say(busy_ ? Health::kNote : Health::kDamaged, why + ": no resume from there");
    if (!why.empty()) continue;
    if (!usable_) usable_ = &*it;
    if (clean(*it)) clean_ = &*it;
  }
}

// Reads a file of JSON lines; `check` sees every one that is an object.
Examination::Log Examination::read_lines(const std::string& name, const LineCheck& check) const {
  Log log;
  log.name = name;
  std::ifstream in(path(name), std::ios::binary);
  std::uint64_t offset = 0;
  for (std::string line; std::getline(in, line); offset += line.size() + 1) {
    // Logs are written in blocks, so the last line of a run under way may lack its end.
    if (in.eof() && busy_) break;
    ++log.lines;
    std::string why = in.eof() ? "has no end" : "";
    try {
      const Json object = parse_json(line);
      if (why.empty()) why = object.is_object() ? check(object) : "is not a JSON object";
    } catch (const nlohmann::json::exception&) {
      why = "lacks a field, or has one of another type";
    }
    if (!why.empty()) log.faults.push_back({offset, fmt::format("line {} {}", log.lines, why)});
  }
  return log;
}

// What resume cuts off and writes anew is no loss.
void Examination::tell(const Log& log) {
  const auto position = usable_ ? usable_->logs.find(log.name) : LogPositions::const_iterator();
  const bool known = usable_ && position != usable_->logs.end();
  if (!fs::exists(path(log.name))) {
    // A file that must hold something was told of with its checkpoint.
    if (!known || position->second == 0) say(known ? Health::kNote : Health::kDamaged, log.name + ": missing");
    return;
  }
  if (log.faults.empty()) return say(Health::kGood, fmt::format("{}: {}", log.name, log.good));
  std::size_t lost = 0;
  for (const Fault& fault : log.faults) {
    if (known && !finished() && fault.offset >= position->second) break;
    if (++lost <= kMostTold) say(Health::kDamaged, fmt::format("{}: {}", log.name, fault.text));
  }
  if (lost > kMostTold) say(Health::kDamaged, fmt::format("{}: and {} more", log.name, lost - kMostTold));
  lines_lost_ = lines_lost_ || lost > 0;
  if (lost == log.faults.size()) return;
  say(Health::kNote, fmt::format("{}: {}; resume cuts off what came after the checkpoint and writes it anew", log.name,
                                 log.faults[lost].text));
}

// Whether no line is missing between two: none is due at a multiple of log.every_updates between them. The checkpoints
// know other values that the option has had.
bool Examination::usual_step(std::int64_t from, std::int64_t to) const {
  std::int64_t most = plan_ ? plan_->config.log.every_updates : 0;
  for (const State& s : states_) most = std::max(most, s.log_every);
  return most == 0 || to <= (from / most + 1) * most;
}

void Examination::read_metrics() {
  std::int64_t last_step = 0;
  // A resumed run may have had a larger log.every_updates before: steps that are alike are then no gap.
  const bool resumed = !states_.empty() && states_.back().incarnation > 0;
  Log log = read_lines("metrics.jsonl", [&](const Json& line) -> std::string {
    const auto update = line.at("update").get<std::int64_t>();
    const std::int64_t before = last_update_, step = update - before;
    if (step <= 0) return fmt::format("is of update {}, the one before of {}", update, before);
    const bool gap = !usual_step(before, update) && !(resumed && (step == last_step || last_step == 0));
    last_step = step;
    last_update_ = update;
    last_metrics_ = line;
    return gap ? fmt::format("is of update {}, the one before of {}: lines are missing", update, before) : "";
  });
  log.good = fmt::format("{} lines, to update {}; none twice, none missing", log.lines, last_update_);
  logs_.push_back(std::move(log));
}

void Examination::read_episodes() {
  std::map<std::int64_t, std::int64_t> last;  // environment -> number of its last episode
  const bool async = plan_ && plan_->config.run.mode == "async";
  const bool dropped = count_of("rejected_segments") > 0;
  Log log = read_lines("episodes.jsonl", [&](const Json& line) -> std::string {
    const auto env = line.at("env").get<std::int64_t>(), number = line.at("episode").get<std::int64_t>();
    const auto it = last.find(env);
    const std::int64_t due = it == last.end() ? 0 : it->second + 1;
    last[env] = number;
    // An async run that was resumed counts its episodes anew; an episode with numbers that are not finite has no line.
    if (number == due || (async && number == 0) || (dropped && number > due)) return {};
    return fmt::format("is episode {} of environment {}, {} was due", number, env, due);
  });
  log.good = fmt::format("{} lines; none twice, none missing", log.lines);
  logs_.push_back(std::move(log));
}

void Examination::read_evaluations() {
  std::int64_t& last = last_evaluation_;
  Log log = read_lines("evaluations.jsonl", [&](const Json& line) -> std::string {
    const std::int64_t before = last;
    last = line.at("update").get<std::int64_t>();
    return last > before ? "" : fmt::format("is of update {}, the one before of {}", last, before);
  });
  log.good = fmt::format("{} lines; none twice", log.lines);
  logs_.push_back(std::move(log));
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
    const auto finite = [](const std::vector<float>& v) {
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
  const bool newest = usable_ == &states_.back();
  if (lines_lost_ && clean_) {
    return fmt::format("move all checkpoints newer than {} away, then: {}, which writes the faulty lines anew",
                       checkpoint_name(clean_->update), how_to_resume(*clean_));
  }
  if (!newest) {
    return fmt::format("move all checkpoints newer than {} away, then: {}", checkpoint_name(usable_->update),
                       how_to_resume(*usable_));
  }
  if (finished() && !result_.damaged()) {
    return fmt::format("nothing; to lengthen the run: gipo resume {} --updates N", run_);
  }
  if (finished() && lines_lost_) return "nothing brings the faulty lines back; the rest is as said above";
  if (finished() && !damaged_.empty() && *damaged_.rbegin() < usable_->update) {
    return fmt::format("remove {}, which nothing needs", path(checkpoint_name(*damaged_.begin())));
  }
  if (ended_.starts_with("failed")) return "see why it failed, above; then: " + how_to_resume(*usable_);
  return how_to_resume(*usable_);
}

std::string Examination::how_to_resume(const State& from) const {
  // A run that was being lengthened: its config may still say how long it was at first.
  const std::int64_t configured = plan_->config.learner.updates, reached = std::max(last_update_, summary_updates_);
  const bool longer = std::max(reached, from.update) > configured;
  if (!longer) return "gipo resume " + run_;
  return fmt::format("gipo resume {} --updates {}", run_,
                     states_.back().updates >= reached ? std::to_string(states_.back().updates) : "N");
}

}  // namespace

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
