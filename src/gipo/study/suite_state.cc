#include "gipo/study/suite_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "gipo/config/option.h"
#include "gipo/core/error.h"
#include "gipo/env/env.h"
#include "gipo/io/checksum.h"
#include "gipo/io/files.h"
#include "gipo/io/json_text.h"
#include "gipo/objective/surrogate.h"
#include "gipo/plan/option_table.h"
#include "gipo/run/checkpoint.h"
#include "gipo/run/resume.h"
#include "gipo/run/run_folder.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// What `gipo resume` may change, a suite may not: they say when a run is done.
constexpr std::array<std::string_view, 3> kEnds = {"learner.updates", "run.target_return", "eval.target_return"};

bool says_when_done(const std::string& key) { return std::ranges::find(kEnds, key) != kEnds.end(); }

void check_config(const SuiteRun& run, const std::string& path) {
  const Config there = load_config(path).config;
  refuse_changes(there, run.plan.config, path);
  for (const OptionGroup<Config>& group : option_table()) {
    for (const Option<Config>& o : group.options) {
      const std::string then = o.get(there), now = o.get(run.plan.config);
      if (!says_when_done(o.key) || then == now) continue;
      throw Error(fmt::format("{}: {} was {} and is now {}: remove the run folder, or give the suite another --out",
                              path, o.key, then.empty() ? "unset" : then, now.empty() ? "unset" : now));
    }
  }
}

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

Json described(const Suite& suite) {
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
  for (const std::string& r : suite.regimes) regimes.push_back(regime_text(r));
  for (const SuiteRun& run : suite.runs) {
    runs.push_back({{"task", suite.tasks[run.task].name},
                    {"method", suite.methods[run.method]},
                    {"regime", regimes[run.regime]},
                    {"seed", run.seed},
                    {"name", run.plan.name}});
  }
  return {{"schema_version", 1}, {"name", suite.name},   {"tasks", tasks}, {"methods", methods},
          {"regimes", regimes},  {"seeds", suite.seeds}, {"runs", runs}};
}

// Places in the suite's file by name.
using Places = std::map<Json, std::size_t>;
template <class Name>
Places places_of(const std::vector<Name>& names) {
  Places places;
  for (const Name& name : names) places.emplace(name, places.size());
  return places;
}

// The entries of both lists by their place in the suite's file, without those that have none; where both have one, that of
// now. place_of throws std::out_of_range for an entry without a place.
template <class PlaceOf>
Json joined(const Json& before, const Json& now, PlaceOf&& place_of) {
  std::map<decltype(place_of(now)), Json> entries;
  for (const Json* all : {&before, &now}) {
    for (const Json& entry : *all) {
      try {
        entries.insert_or_assign(place_of(entry), entry);
      } catch (const std::out_of_range&) {  // the file lacks it
      }
    }
  }
  Json out = Json::array();
  for (auto& [place, entry] : entries) out.push_back(std::move(entry));
  return out;
}

void add_earlier(const SuiteChoice& all, const Json& before, Json& now) {
  std::vector<std::string> names;
  for (const std::string& regime : all.regimes) names.push_back(regime_text(regime));
  const Places tasks = places_of(all.tasks), methods = places_of(all.methods), regimes = places_of(names),
               seeds = places_of(all.seeds);
  const auto join = [&](const char* part, auto&& place_of) {
    now[part] = joined(before.at(part), now.at(part), place_of);
  };
  join("tasks", [&](const Json& task) { return tasks.at(task.at("name")); });
  join("methods", [&](const Json& method) { return methods.at(method.at("name")); });
  join("regimes", [&](const Json& regime) { return regimes.at(regime); });
  join("seeds", [&](const Json& seed) { return seeds.at(seed); });
  join("runs", [&](const Json& run) {
    return std::array{seeds.at(run.at("seed")), regimes.at(run.at("regime")), tasks.at(run.at("task")),
                      methods.at(run.at("method"))};
  });
}

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

std::string options_checksum(const Config& config) {
  std::set<std::string> lines;  // sorted, so that their order in the table does not matter
  const Config defaults;
  for (const OptionGroup<Config>& group : option_table()) {
    for (const Option<Config>& o : group.options) {
      const std::string value = o.get(config);
      const bool counts = !may_change(o.key) || says_when_done(o.key);
      if (counts && value != o.get(defaults)) lines.insert(o.key + " = " + value + "\n");
    }
  }
  const OptionValues usual = task_options(config.env.id, {});
  for (const auto& [name, value] : task_options(config.env.id, config.env_options)) {
    const std::string text = to_toml(value);
    if (usual.contains(name) && to_toml(usual.at(name)) == text) continue;
    lines.insert(fmt::format("{}{} = {}\n", kEnvOptions, name, text));
  }
  std::uint32_t sum = 0;
  for (const std::string& line : lines) sum = crc32c(line, sum);
  return fmt::format("{:08x}", sum);
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

RunReturns returns_of(const Json& summary) {
  const auto mean = [&](const char* key) -> std::optional<double> {
    const Json stats = summary.value(key, Json::object());
    const Json value = stats.is_object() ? stats.value("mean", Json()) : Json();
    return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
  };
  return {mean("final_return"), mean("eval_return")};
}

std::string regime_text(const std::string& regime) { return regime.empty() ? "-" : regime; }

std::string suite_json(const Suite& suite, const std::string& before) {
  Json out = described(suite);
  try {
    Json both = out;
    add_earlier(suite.all, Json::parse(before), both);
    out = std::move(both);
  } catch (const Json::exception&) {  // there is nothing before, or it is damaged
  }
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gipo
