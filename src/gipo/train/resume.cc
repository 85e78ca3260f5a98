#include "gipo/train/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "gipo/core/error.h"

namespace gipo {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 4> kFreeOptions = {"run.dir", "run.name", "run.threads", "learner.updates"};
constexpr std::array<std::string_view, 3> kFreeGroups = {"eval", "log", "checkpoint"};
constexpr std::size_t kMostStateBytes =
    256 * 1024;  // many times what is written; it bounds the time that parsing takes

[[noreturn]] void refuse(const std::string& key, const Json& value) {
  throw Error(fmt::format("{} = {} is not accepted", key, value.is_number() ? value.dump() : "not a number"));
}

[[noreturn]] void refuse_change(const std::string& where, const std::string& key, const std::string& before,
                                const std::string& after) {
  throw Error(
      fmt::format("{}: {} was {} and is now {}: a run cannot change this when it is resumed; what may "
                  "change: {}, and all of {}",
                  where, key, before.empty() ? "unset" : before, after.empty() ? "unset" : after,
                  fmt::join(kFreeOptions, ", "), fmt::join(kFreeGroups, ", ")));
}

OptionValues task_options(const Config& config, const std::string& where) {
  try {
    const EnvSpec& task = find_env(config.env.id);
    return resolve_options(task.id, task.options, config.env_options);
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", where, e.what()));
  }
}

std::int64_t read_whole(const Json& from, const std::string& key, std::int64_t low, std::int64_t high) {
  const Json& value = from.at(key);
  if (!value.is_number_integer()) refuse(key, value);
  const auto v = value.get<std::int64_t>();  // one beyond its range becomes negative
  if (v < low || v > high) refuse(key, value);
  return v;
}

double read_positive(const Json& from, const std::string& key) {
  const double v = from.at(key).get<double>();
  if (!(v > 0) || !std::isfinite(v)) refuse(key, from.at(key));
  return v;
}

// The dial of the run's beginning in place of the plan's own.
void read_dial(const Json& dial, Plan& plan) {
  constexpr std::int64_t kMost = 1'000'000'000'000;
  plan.capacity = read_whole(dial, "capacity", static_cast<std::int64_t>(plan.segment_length), 10'000'000'000);
  plan.env_steps_per_update = read_positive(dial, "env_steps_per_update");
  plan.window = read_positive(dial, "window");
  plan.t_old = read_whole(dial, "t_old", 1, kMost);
  plan.warmup = read_whole(dial, "warmup", 1, kMost);
  // Follows from options that cannot change.
  read_whole(dial, "updates_per_rollout", plan.updates_per_rollout, plan.updates_per_rollout);
}

LogPositions read_positions(const Json& logs) {
  LogPositions positions;
  for (const auto& [name, value] : logs.items()) {
    // These files will be cut: none outside the run folder.
    if (name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) throw Error("logs names no log: " + name);
    if (!value.is_number_unsigned()) refuse("logs." + name, value);
    positions[name] = value.get<std::uint64_t>();
  }
  return positions;
}

}  // namespace

void refuse_changes(const Config& then, const Config& now, const std::string& where) {
  for (const OptionGroup& group : option_table()) {
    if (std::find(kFreeGroups.begin(), kFreeGroups.end(), group.name) != kFreeGroups.end()) continue;
    for (const Option& o : group.options) {
      if (std::find(kFreeOptions.begin(), kFreeOptions.end(), o.key) != kFreeOptions.end()) continue;
      const std::string before = o.get(then), after = o.get(now);
      if (before != after) refuse_change(where, o.key, before, after);
    }
  }
  // The task is the same by now. An option that stands at its default may be left out.
  const OptionValues before = task_options(then, where);
  for (const auto& [name, value] : task_options(now, where)) {
    const OptionValue& old = before.at(name);
    if (value != old) refuse_change(where, std::string(kEnvOptions) + name, to_toml(old), to_toml(value));
  }
}

ResumePoint find_resume_point(const std::string& run_dir, std::optional<std::int64_t> updates) {
  ResumePoint point;
  const std::string folder = run_dir + "/" + kCheckpointFolder;
  LoadedConfig now = load_config(run_dir + "/config.toml");
  std::optional<Checkpoint> checkpoint = newest_checkpoint(folder, point.passed_over);
  if (!checkpoint) {
    throw Error(fmt::format("{}: no whole checkpoint to resume from{}", folder,
                            point.passed_over.empty() ? "" : "; " + point.passed_over.front()));
  }
  point.checkpoint = std::move(*checkpoint);
  try {
    const std::string& text = point.checkpoint.files["state.json"];
    if (text.size() > kMostStateBytes) throw Error(fmt::format("{}: state.json is too large to be one", folder));
    const Json state = Json::parse(text);
    const LoadedConfig then = parse_config(state.at("config").get<std::string>(), "the checkpoint's config");
    refuse_changes(then.config, now.config, run_dir + "/config.toml");
    if (updates) now.config.learner.updates = *updates;
    if (now.config.learner.updates < point.checkpoint.update) {
      throw Error(fmt::format("learner.updates = {} is not accepted: the run has made {} updates already",
                              now.config.learner.updates, point.checkpoint.update));
    }
    point.positions = read_positions(state.at("logs"));
    // The dial stays as it was when the run began: a longer run must not change what the replay holds.
    now.config.learner.updates = std::max(now.config.learner.updates, point.checkpoint.update);
    LoadedConfig at_start = now;
    at_start.config.learner.updates = then.config.learner.updates;
    point.plan = make_plan(at_start);
    if (const std::string engine = state.value("engine", ""); engine != point.plan.env.engine) {
      throw Error(fmt::format("{}: the run was simulated by {}, here it would be {}: the steps would be others",
                              run_dir, engine.empty() ? "no engine that it names" : engine, point.plan.env.engine));
    }
    point.plan.config.learner.updates = now.config.learner.updates;
    read_dial(state.at("dial"), point.plan);
    if (!point.plan.countable()) {
      throw Error(fmt::format("learner.updates = {} is not accepted: the run would take more than 1e15 env steps",
                              now.config.learner.updates));
    }
    point.plan.run_dir = run_dir;
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("{}: checkpoint {}: state.json: {}", folder, point.checkpoint.update, e.what()));
  }
  return point;
}

}  // namespace gipo
