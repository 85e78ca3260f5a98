#include "gipo/run/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/plan/memory.h"
#include "gipo/plan/option_table.h"
#include "gipo/run/state_fields.h"

namespace gipo {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 11> kFreeOptions = {
    "run.dir",       "run.name",   "run.threads", "run.target_return", "learner.updates", "learner.env_steps",
    "learner.ranks", "env.python", "env.workers", "env.max_deaths",    "env.step_timeout"};
constexpr std::array<std::string_view, 3> kFreeGroups = {"eval", "log", "checkpoint"};
constexpr std::int64_t kMostUpdates = 1'000'000'000'000, kMostEnvSteps = std::int64_t{1} << 62;

[[noreturn]] void refuse_change(const std::string& where, const std::string& key, const std::string& before,
                                const std::string& after) {
  throw Error(
      fmt::format("{}: {} was {} and is now {}: a run cannot change this when it is resumed; what may "
                  "change: {}, and all of {}",
                  where, key, before.empty() ? "unset" : before, after.empty() ? "unset" : after,
                  fmt::join(kFreeOptions, ", "), fmt::join(kFreeGroups, ", ")));
}

OptionValues options_of(const Config& config, const std::string& where) {
  try {
    return task_options(config.env.id, config.env_options);
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", where, e.what()));
  }
}

// The dial of the run's beginning in place of the plan's own.
void read_dial(const Json& dial, Plan& plan) {
  plan.capacity = read_whole(dial, "capacity", static_cast<std::int64_t>(plan.segment_length), 10'000'000'000);
  plan.env_steps_per_update = read_real(dial, "env_steps_per_update", 1e-9, 1e12);
  plan.window = read_real(dial, "window", 1e-9, 1e15);
  plan.t_old = read_whole(dial, "t_old", 1, kMostUpdates);
  plan.warmup = read_whole(dial, "warmup", 1, kMostUpdates);
  // Follows from options that cannot change.
  read_whole(dial, "updates_per_rollout", plan.updates_per_rollout, plan.updates_per_rollout);
}

// The plan of the run's beginning, but for the options that may change.
Plan plan_of(const LoadedConfig& now, const Json& state, std::int64_t update) {
  Plan plan = plan_with_dial_of(now, dial_updates(state));
  take_dial(state, plan);
  if (plan.config.learner.updates >= update) return plan;
  if (const std::int64_t env_steps = now.config.learner.env_steps; env_steps > 0) {
    throw Error(
        fmt::format("learner.env_steps = {} is not accepted: the run has made {} updates already, with {} env "
                    "steps",
                    env_steps, update, read_whole(state, "env_steps", 0, kMostEnvSteps)));
  }
  throw Error(fmt::format("learner.updates = {} is not accepted: the run has made {} updates already",
                          plan.config.learner.updates, update));
}

}  // namespace

LogPositions read_positions(const Json& state) {
  LogPositions positions;
  const Json& logs = state.at("logs");
  for (const auto& [name, value] : logs.items()) {
    // These files will be cut: none outside the run folder.
    if (name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) throw Error("logs names no log: " + name);
    positions[name] = static_cast<std::uint64_t>(read_whole(logs, name, 0, std::numeric_limits<std::int64_t>::max()));
  }
  return positions;
}

std::int64_t dial_updates(const Json& state) { return read_whole(state.at("dial"), "updates", 1, kMostUpdates); }

void take_dial(const Json& state, Plan& plan) {
  if (const std::string engine = state.value("engine", ""); engine != plan.env.engine) {
    throw Error(fmt::format("the run was simulated by {}, here it would be {}: the steps would be others",
                            engine.empty() ? "no engine that it names" : engine, plan.env.engine));
  }
  read_dial(state.at("dial"), plan);
  if (!plan.countable()) {
    throw Error(fmt::format("learner.updates = {} is not accepted: the run would take more than 1e15 env steps",
                            plan.config.learner.updates));
  }
}

Plan plan_with_dial_of(LoadedConfig config, std::int64_t updates_then) {
  LearnerOptions& learner = config.config.learner;
  const std::int64_t updates = std::exchange(learner.updates, updates_then),
                     env_steps = std::exchange(learner.env_steps, 0);
  Plan plan = make_plan(config);
  plan.config.learner.updates = env_steps == 0 ? updates : plan.updates_for(env_steps);
  return plan;
}

bool may_change(std::string_view key) {
  return std::ranges::find(kFreeOptions, key) != kFreeOptions.end() ||
         std::ranges::find(kFreeGroups, key.substr(0, key.find('.'))) != kFreeGroups.end();
}

void refuse_changes(const Config& then, const Config& now, const std::string& where) {
  for (const OptionGroup<Config>& group : option_table()) {
    for (const Option<Config>& o : group.options) {
      if (may_change(o.key)) continue;
      const std::string before = o.get(then), after = o.get(now);
      if (before != after) refuse_change(where, o.key, before, after);
    }
  }
  // The task is the same by now. An option that stands at its default may be left out.
  const OptionValues before = options_of(then, where), after = options_of(now, where);
  const auto shown = [](const OptionValues& all, const std::string& name) {
    return all.contains(name) ? to_toml(all.at(name)) : "";
  };
  OptionValues all = before;
  all.insert(after.begin(), after.end());
  for (const auto& [name, value] : all) {
    if (shown(before, name) != shown(after, name)) {
      refuse_change(where, std::string(kEnvOptions) + name, shown(before, name), shown(after, name));
    }
  }
}

ResumePoint find_resume_point(const std::string& run_dir, const RunLength& length) {
  ResumePoint point;
  const std::string folder = run_dir + "/" + kCheckpointFolder;
  LoadedConfig now = load_config(run_dir + "/config.toml");
  if (length.updates) set_option(now, "learner.updates", *length.updates, "--updates");
  if (length.env_steps) set_option(now, "learner.env_steps", *length.env_steps, "--env-steps");
  Json state;
  const auto usable = [&](const Checkpoint& c) {
    const auto text = c.files.find("state.json");
    const auto refuse = [&](const std::string& why) {
      throw Error(fmt::format("{}/{:06}: {}", folder, c.update, why));
    };
    if (text == c.files.end()) refuse("it has no state.json");
    try {
      state = parse_state(text->second);
      point.positions = read_positions(state);
    } catch (const std::exception& e) {
      refuse(e.what());
    }
    if (const std::string why = logs_fall_short(run_dir, point.positions); !why.empty()) refuse(why);
  };
  std::optional<Checkpoint> checkpoint = newest_checkpoint(folder, point.passed_over, usable);
  if (!checkpoint) {
    throw Error(fmt::format("{}: no whole checkpoint to resume from{}", folder,
                            point.passed_over.empty() ? "" : "; " + point.passed_over.front()));
  }
  point.checkpoint = std::move(*checkpoint);
  try {
    const LoadedConfig then = parse_config(state.at("config").get<std::string>(), "the checkpoint's config");
    refuse_changes(then.config, now.config, run_dir + "/config.toml");
    point.plan = plan_of(now, state, point.checkpoint.update);
    point.plan.run_dir = run_dir;
    refuse_what_does_not_fit(point.plan, now.origins);
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("{}: checkpoint {}: state.json: {}", folder, point.checkpoint.update, e.what()));
  }
  return point;
}

}  // namespace gipo
