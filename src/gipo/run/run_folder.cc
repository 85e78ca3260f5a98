#include "gipo/run/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "gipo/core/error.h"
#include "gipo/plan/option_table.h"
#include "gipo/run/version.h"

namespace gipo {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::string_view kEventPrefix = "events.out.tfevents.";

bool is_event_file(const std::string& name) { return name.starts_with(kEventPrefix); }

// Figures have the precision of 32-bit floats, as TensorBoard keeps them, so that both files say the same.
void append_number(std::string& line, double value) {
  const auto v = static_cast<float>(value);
  if (std::isfinite(v)) {
    fmt::format_to(std::back_inserter(line), "{}", v);
  } else {
    line += "null";
  }
}

void append_histogram(std::string& line, const char* name, const AgeHistogram& histogram) {
  fmt::format_to(std::back_inserter(line), ",\"{}\":[", name);
  for (std::size_t i = 0; i < histogram.size(); ++i) {
    fmt::format_to(std::back_inserter(line), "{}[{}]", i == 0 ? "" : ",", fmt::join(histogram[i], ","));
  }
  line += ']';
}

void append_profile(std::string& line, const Diagnostics::Profile& profile) {
  fmt::format_to(std::back_inserter(line), ",\"{}\":[", profile.name);
  for (std::size_t i = 0; i < profile.values.size(); ++i) {
    if (i > 0) line += ',';
    append_number(line, profile.values[i]);
  }
  line += ']';
}

Json number(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }

Json to_json(const ReturnStats& s) {
  if (s.episodes == 0) return {{"mean", nullptr}, {"std", nullptr}, {"episodes", 0}};
  Json json = {{"mean", number(s.mean)}, {"std", number(s.std)}, {"episodes", s.episodes}};
  if (s.success_rate) json.update({{"success_rate", *s.success_rate}, {"success_rate_last", *s.success_rate_last}});
  return json;
}

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

Json machine() {
  utsname name{};
  uname(&name);
  return {{"system", fmt::format("{} {}", name.sysname, name.release)},
          {"architecture", name.machine},
          {"processor", processor()},
          {"cores", std::thread::hardware_concurrency()}};
}

}  // namespace

RunFolder::RunFolder(const Plan& plan, std::string command, std::function<double()> wall_time)
    : plan_(plan), path_(plan.run_dir), command_(std::move(command)), wall_time_(std::move(wall_time)) {
  if (fs::exists(path_)) {
    throw Error(
        fmt::format("run folder {} exists: choose another with --name or --set run.dir=..., or remove it "
                    "with --overwrite",
                    path_));
  }
  std::error_code failed;
  fs::create_directories(path_, failed);
  if (failed) throw Error(fmt::format("cannot create the run folder {}: {}", path_, failed.message()));
  lock_ = std::make_unique<FileLock>(path_ + "/lock", "run folder " + path_);
  open(nullptr);
}

RunFolder::RunFolder(const Plan& plan, std::string command, std::function<double()> wall_time,
                     const LogPositions& positions)
    : plan_(plan), path_(plan.run_dir), command_(std::move(command)), wall_time_(std::move(wall_time)) {
  lock_ = std::make_unique<FileLock>(path_ + "/lock", "run folder " + path_);
  for (const auto& [name, size] : positions) {
    if (is_event_file(name)) events_name_ = name;
  }
  open(&positions);
}

void RunFolder::open(const LogPositions* positions) {
  write_file_atomic(path_ + "/config.toml", config_to_toml(plan_.config));
  const auto keep = [&](const std::string& name) {
    if (!positions) return AppendFile::kKeepAll;
    const auto it = positions->find(name);
    return it == positions->end() ? AppendFile::kKeepAll : it->second;
  };
  const auto file = [&](const std::string& name) {
    return std::make_unique<AppendFile>(path_ + "/" + name, keep(name));
  };
  metrics_ = file("metrics.jsonl");
  episodes_ = file("episodes.jsonl");
  evaluations_ = file("evaluations.jsonl");
  log_ = file("log.txt");
  if (plan_.config.log.tensorboard) {
    if (events_name_.empty()) {
      events_name_ = fmt::format("{}{:010}.gipo", kEventPrefix, static_cast<std::int64_t>(wall_time_()));
    }
    events_ = std::make_unique<EventFile>(path_ + "/" + events_name_, wall_time_(), keep(events_name_));
  }
}

void remove_run(const std::string& path) {
  if (!fs::exists(path)) return;
  if (!fs::exists(path + "/config.toml") || !fs::exists(path + "/metrics.jsonl")) {
    throw Error(
        fmt::format("--overwrite: {} exists but does not look like a run folder (no config.toml and "
                    "metrics.jsonl): remove it by hand",
                    path));
  }
  const FileLock lock(path + "/lock", "run folder " + path);
  fs::remove_all(path);
}

LogPositions RunFolder::positions() const {
  LogPositions all = {{"metrics.jsonl", metrics_->position()},
                      {"episodes.jsonl", episodes_->position()},
                      {"evaluations.jsonl", evaluations_->position()}};
  if (events_) all[events_name_] = events_->position();
  return all;
}

std::string logs_fall_short(const std::string& run_dir, const LogPositions& positions) {
  for (const auto& [name, position] : positions) {
    const std::string path = fmt::format("{}/{}", run_dir, name);
    std::error_code failed;
    const auto found = fs::file_size(path, failed);
    if (failed && is_event_file(name)) continue;  // made from metrics.jsonl's figures; a new one is begun
    const std::uint64_t size = failed ? 0 : found;
    if (size < position) return fmt::format("{} has {} bytes, and had {} when it was made", name, size, position);
    if (position == 0 || !name.ends_with(".jsonl")) continue;
    std::ifstream in(path, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(position - 1));
    if (in.get() != '\n') return fmt::format("{} was changed: its place there is inside a line", name);
  }
  return {};
}

void RunFolder::metrics(std::int64_t update, std::int64_t env_steps, const Figures& figures,
                        const Diagnostics& diagnostics) {
  line_.clear();
  fmt::format_to(std::back_inserter(line_), "{{\"update\":{},\"env_steps\":{}", update, env_steps);
  for (const auto& [name, value] : figures) {
    fmt::format_to(std::back_inserter(line_), ",\"{}\":", name);
    append_number(line_, value);
  }
  if (!plan_.clones()) {
    append_histogram(line_, "contribution_by_age", diagnostics.contribution_by_age());
    append_histogram(line_, "log_ratio_by_age", diagnostics.log_ratio_by_age());
  }
  if (plan_.config.log.histograms && !plan_.clones()) {
    for (const Diagnostics::Profile& profile : diagnostics.profiles()) append_profile(line_, profile);
  }
  line_ += "}\n";
  append(*metrics_, line_);
  try {
    if (events_) events_->scalars(update, wall_time_(), figures);
  } catch (const RunError& e) {
    warn(e.what());
  }
}

void RunFolder::append(AppendFile& file, const std::string& line) {
  try {
    file.append(line);
    // For those who watch the run. The buffers of slow runs would take minutes to fill.
    const double now = wall_time_();
    if (now - flushed_ >= 1 || now < flushed_) {
      flushed_ = now;
      flush();
    }
  } catch (const RunError& e) {
    warn(e.what());
  }
}

// The same trouble is told once.
void RunFolder::warn(const std::string& text) {
  if (!told_.insert(text).second) return;
  warnings_.push_back(text + "; training goes on, the lines are kept and tried again");
}

void RunFolder::episode(const Episode& e) {
  line_.clear();
  fmt::format_to(std::back_inserter(line_),
                 "{{\"env\":{},\"episode\":{},\"return\":{},\"length\":{},\"env_steps\":{},\"version\":{},"
                 "\"terminated\":{}",
                 e.env, e.number, std::isfinite(e.episode_return) ? fmt::format("{}", e.episode_return) : "null",
                 e.length, e.env_steps, e.version, e.terminated);
  if (e.success.known) {
    fmt::format_to(std::back_inserter(line_), ",\"success\":{},\"success_last\":{}", e.success.ever, e.success.last);
  }
  line_ += "}\n";
  append(*episodes_, line_);
}

void RunFolder::evaluation(std::int64_t update, std::int64_t env_steps, const Evaluation& result) {
  Json line = {{"update", update}, {"env_steps", env_steps}};
  line.update(to_json(result.returns));
  if (!result.faults.empty()) line["faults"] = result.faults;
  append(*evaluations_, line.dump() + "\n");
}

void RunFolder::log(const std::string& text) {
  const auto now = static_cast<std::time_t>(wall_time_());
  append(*log_, fmt::format("{:%Y-%m-%d %H:%M:%S} {}\n", fmt::gmtime(now), text));
  try {
    log_->flush();
  } catch (const RunError& e) {
    warn(e.what());
  }
}

void RunFolder::flush() {
  for (AppendFile* file : {metrics_.get(), episodes_.get(), evaluations_.get(), log_.get()}) file->flush();
  if (events_) events_->flush();
  told_.clear();
}

void RunFolder::save_policy(const std::string& safetensors) {
  write_file_atomic(path_ + "/" + kPolicyFile, safetensors);
}

void RunFolder::save_best(const std::string& safetensors) {
  const std::string path = path_ + "/" + kBestFile;
  std::error_code ignored;
  if (safetensors.empty()) {
    fs::remove(path, ignored);
  } else {
    write_file_atomic(path, safetensors);
  }
}

void RunFolder::write_summary(const RunSummary& s) {
  flush();
  const Config& c = plan_.config;
  Json window = Json::object();
  for (const auto& [name, value] : last_means(path_ + "/metrics.jsonl")) window[name] = number(value);
  for (const auto& [name, value] : last_means(path_ + "/episodes.jsonl")) {
    if (name == "return") window["episode_return"] = number(value);
  }
  Json summary = {
      {"schema_version", 1},
      {"gipo_version", version()},
      {"commit", commit()},
      {"command", command_},
      {"machine", machine()},
      {"name", plan_.name},
      {"env", c.env.id},
      {"surrogate", c.surrogate.name},
      {"ratio", word_of(c.surrogate.ratio)},
      {"seed", c.run.seed},
      {"mode", word_of(c.run.mode)},
      {"env_steps", s.env_steps},
      {"updates", s.updates},
      {"episodes", s.episodes},
      {"seconds", s.seconds},
      {"ended", s.ended},
      {"final_return", to_json(s.final_return)},
      {"eval_return", to_json(s.eval_return)},
      {"staleness",
       {{"regime", word_of(c.staleness.regime)},
        {"capacity", plan_.capacity},
        {"env_steps_per_update", plan_.env_steps_per_update},
        {"window", plan_.window},
        {"t_old", plan_.t_old},
        {"actors", plan_.actors},
        {"environments", plan_.envs()}}},
      {"counts",
       {{"skipped_updates", s.skipped_updates},
        {"rejected_segments", s.rejected_segments},
        {"faults", s.faults},
        {"eval_faults", s.eval_faults},
        {"replay_size", s.replay_size},
        {"replay_evicted", s.replay_evicted}}},
      {"fingerprint",
       {{"weights", fmt::format("{:08x}", s.weights_fingerprint)},
        {"replay", fmt::format("{:08x}", s.replay_fingerprint)}}},
      {"window", window},
  };
  if (s.best) {
    summary["best"] = {
        {"update", s.best->update}, {"env_steps", s.best->env_steps}, {"return", to_json(s.best->returns)}};
  }
  if (plan_.clones()) summary["clone"] = c.clone.data;
  if (!c.run.init_from.empty()) summary["init_from"] = c.run.init_from;
  if (!plan_.env.engine.empty()) summary["engine"] = plan_.env.engine;
  if (!plan_.env.saves_state) summary["on_resume"] = "new episodes";
  write_file_atomic(path_ + "/summary.json", summary.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Figures last_means(const std::string& path) {
  // The last line says how far the run came; the first pass finds it without keeping the lines.
  double last = 0;
  std::ifstream in(path);
  std::string line;
  std::string_view key = "\"env_steps\":";
  const auto progress = [&key](const std::string& text) {
    const std::size_t at = text.find(key);
    return at == std::string::npos ? 0.0 : std::strtod(text.c_str() + at + key.size(), nullptr);
  };
  while (std::getline(in, line)) last = std::max(last, progress(line));
  if (last == 0) {  // demonstrations take no steps: by updates
    key = "\"update\":";
    in.clear();
    in.seekg(0);
    while (std::getline(in, line)) last = std::max(last, progress(line));
  }
  in.clear();
  in.seekg(0);

  struct Mean {
    std::string name;
    double sum = 0;
    std::int64_t count = 0;
  };
  std::vector<Mean> means;
  while (std::getline(in, line)) {
    if (progress(line) < 0.8 * last) continue;
    const Json values = Json::parse(line, nullptr, false);
    if (!values.is_object()) continue;
    for (const auto& [name, value] : values.items()) {
      if (!value.is_number() || name == "update" || name == "env_steps") continue;
      auto it = std::find_if(means.begin(), means.end(), [&, name = name](const Mean& m) { return m.name == name; });
      if (it == means.end()) it = means.insert(means.end(), {name, 0, 0});
      it->sum += value.get<double>();
      ++it->count;
    }
  }
  Figures figures;
  for (const Mean& m : means) figures.emplace_back(m.name, m.sum / static_cast<double>(m.count));
  return figures;
}

}  // namespace gipo
