#include "gipo/study/suite_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gipo/config/option.h"
#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/io/json_text.h"
#include "gipo/objective/surrogate.h"
#include "gipo/run/checkpoint.h"
#include "gipo/run/resume.h"
#include "gipo/run/run_folder.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void check_config(const SuiteRun& run, const std::string& path) {
  const Config there = load_config(path).config;
  refuse_changes(there, run.plan.config, path);
  // What `gipo resume` may change, a suite may not: they say when a run is done.
  const auto refuse = [&path](const char* key, const std::string& then, const std::string& now) {
    throw Error(fmt::format("{}: {} was {} and is now {}: remove the run folder, or give the suite another --out", path,
                            key, then, now));
  };
  const Config& now = run.plan.config;
  if (there.learner.updates != now.learner.updates) {
    refuse("learner.updates", std::to_string(there.learner.updates), std::to_string(now.learner.updates));
  }
  const auto same_target = [&refuse](const char* key, const Maybe<double>& then, const Maybe<double>& wanted) {
    const auto in_words = [](const Maybe<double>& v) { return v ? fmt::format("{}", *v) : "unset"; };
    if (then != wanted) refuse(key, in_words(then), in_words(wanted));
  };
  same_target("run.target_return", there.run.target_return, now.run.target_return);
  same_target("eval.target_return", there.eval.target_return, now.eval.target_return);
}

Json read_summary(const std::string& path) {
  constexpr JsonLimits kLimits;
  Json summary;
  try {
    summary = parse_json<Json>(read_file(path, kLimits.bytes), path, kLimits);
  } catch (const Error&) {  // told below
  }
  if (!summary.is_object() || summary.value("schema_version", Json()) != 1 || !summary.contains("ended") ||
      !summary["ended"].is_string()) {
    throw Error(fmt::format("{}: schema_version 1 is wanted: the run is of another version, or damaged", path));
  }
  return summary;
}

std::string optional_text(const std::string& name) { return name.empty() ? "-" : name; }

// The options that the method's surrogate reads, of those that are set.
Json surrogate_settings(const Suite& suite, std::size_t method) {
  const auto run =
      std::find_if(suite.runs.begin(), suite.runs.end(), [&](const auto& r) { return r.method == method; });
  const SurrogateOptions& options = run->plan.config.surrogate;
  Json settings = {{"name", options.name}};
  for (const SurrogateInfo& info : registered_surrogates()) {
    if (info.name != options.name) continue;
    const OptionGroup<SurrogateOptions>& group = group_of<SurrogateOptions>();
    for (const Option<SurrogateOptions>& o : group.options) {
      const std::string key = o.key.substr(group.name.size() + 1), value = o.get(options);
      const bool read = std::find(info.options.begin(), info.options.end(), key) != info.options.end();
      if (read && !value.empty()) settings[key] = Json::parse(value);
    }
  }
  return settings;
}

Json optional_number(const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); }

}  // namespace

RunStanding look_at(const SuiteRun& run) {
  const std::string& folder = run.plan.run_dir;
  const std::string config = folder + "/config.toml", summary = folder + "/summary.json";
  if (!fs::exists(config)) return {};
  check_config(run, config);
  if (fs::exists(summary)) {
    const std::string ended = read_summary(summary)["ended"].get<std::string>();
    if (ended_well(ended)) return {RunState::kFinished, ""};
    if (ended.starts_with("failed")) return {RunState::kFailed, ended};
  }
  const bool saved = !list_checkpoints(folder + "/" + kCheckpointFolder).empty();
  return {saved ? RunState::kStarted : RunState::kAbsent, ""};
}

void remove_remnants(const std::string& run_dir) {
  if (!fs::exists(run_dir)) return;
  constexpr std::array<std::string_view, 9> kOwn = {
      "lock",    "config.toml",          "metrics.jsonl", "episodes.jsonl",    "evaluations.jsonl",
      "log.txt", "events.out.tfevents.", "checkpoints",   "policy.safetensors"};
  for (const auto& entry : fs::directory_iterator(run_dir)) {
    const std::string name = entry.path().filename().string();
    const bool own = std::any_of(kOwn.begin(), kOwn.end(), [&](auto known) { return name.starts_with(known); });
    if (!own) throw Error(fmt::format("{}: not a file of a run: {} is not removed", entry.path().string(), run_dir));
  }
  const FileLock lock(run_dir + "/lock", "run folder " + run_dir);
  fs::remove_all(run_dir);
}

std::int64_t updates_done(const std::string& run_dir) {
  constexpr std::streamoff kTail = 32 * 1024;  // a few lines
  std::ifstream in(run_dir + "/metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!in) return 0;
  const std::streamoff size = in.tellg(), begin = std::max<std::streamoff>(0, size - kTail);
  std::string tail(static_cast<std::size_t>(size - begin), '\0');
  in.seekg(begin);
  in.read(tail.data(), static_cast<std::streamsize>(tail.size()));
  constexpr std::string_view kKey = "{\"update\":";
  const std::size_t at = tail.rfind(kKey);
  return at == std::string::npos ? 0 : std::strtoll(tail.c_str() + at + kKey.size(), nullptr, 10);
}

RunReturns returns_of(const std::string& run_dir) {
  const Json summary = read_summary(run_dir + "/summary.json");
  const auto mean = [&](const char* key) -> std::optional<double> {
    const Json stats = summary.value(key, Json::object());
    const Json value = stats.is_object() ? stats.value("mean", Json()) : Json();
    return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
  };
  return {mean("final_return"), mean("eval_return")};
}

std::string results_json(const Suite& suite) {
  std::string rows;
  for (const SuiteRun& run : suite.runs) {
    Json row = {{"task", suite.tasks[run.task].name},
                {"method", suite.methods[run.method]},
                {"regime", optional_text(suite.regimes[run.regime])},
                {"seed", run.seed},
                {"name", run.plan.name}};
    const std::string path = run.plan.run_dir + "/summary.json";
    if (!fs::exists(path)) {
      row["ended"] = "not begun or not ended";
    } else {
      const Json s = read_summary(path);
      for (const char* key : {"ended", "env_steps", "updates", "episodes"}) row[key] = s.value(key, Json());
      for (const char* key : {"final_return", "eval_return", "staleness", "window"}) row[key] = s.value(key, Json());
    }
    rows += (rows.empty() ? "" : ",\n") + row.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return "[\n" + rows + "\n]\n";
}

std::string suite_json(const Suite& suite) {
  Json tasks = Json::array(), runs = Json::array();
  for (const SuiteTask& t : suite.tasks) {
    tasks.push_back({{"name", t.name},
                     {"random", optional_number(t.random)},
                     {"reference", optional_number(t.reference)},
                     {"threshold", optional_number(t.threshold)}});
  }
  Json methods = Json::array();
  for (std::size_t m = 0; m < suite.methods.size(); ++m) {
    const auto run = std::find_if(suite.runs.begin(), suite.runs.end(), [&](const auto& r) { return r.method == m; });
    methods.push_back({{"name", suite.methods[m]},
                       {"surrogate", surrogate_settings(suite, m)},
                       {"proximal_coef", run->plan.config.learner.proximal_coef}});
  }
  std::vector<std::string> regimes;
  for (const std::string& r : suite.regimes) regimes.push_back(optional_text(r));
  for (const SuiteRun& run : suite.runs) {
    runs.push_back({{"task", suite.tasks[run.task].name},
                    {"method", suite.methods[run.method]},
                    {"regime", regimes[run.regime]},
                    {"seed", run.seed},
                    {"name", run.plan.name}});
  }
  const Json out = {{"schema_version", 1}, {"name", suite.name},   {"tasks", tasks}, {"methods", methods},
                    {"regimes", regimes},  {"seeds", suite.seeds}, {"runs", runs}};
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gipo
