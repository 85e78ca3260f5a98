#include "gipo/train/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "gipo/core/error.h"

namespace gipo {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kFreeOptions = {"run.dir", "run.name", "run.threads", "learner.updates"};
constexpr std::array<std::string_view, 3> kFreeGroups = {"eval", "log", "checkpoint"};

}  // namespace

void refuse_changes(const Config& then, const Config& now, const std::string& where) {
  for (const OptionGroup& group : option_table()) {
    if (std::find(kFreeGroups.begin(), kFreeGroups.end(), group.name) != kFreeGroups.end()) continue;
    for (const Option& o : group.options) {
      if (std::find(kFreeOptions.begin(), kFreeOptions.end(), o.key) != kFreeOptions.end()) continue;
      const std::string before = o.get(then), after = o.get(now);
      if (before == after) continue;
      throw Error(
          fmt::format("{}: {} was {} and is now {}: a run cannot change this when it is resumed; what may "
                      "change: {}, and all of {}",
                      where, o.key, before.empty() ? "unset" : before, after.empty() ? "unset" : after,
                      fmt::join(kFreeOptions, ", "), fmt::join(kFreeGroups, ", ")));
    }
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
    const Json state = Json::parse(point.checkpoint.files["state.json"]);
    const LoadedConfig then = parse_config(state.at("config").get<std::string>(), "the checkpoint's config");
    refuse_changes(then.config, now.config, run_dir + "/config.toml");
    if (updates) now.config.learner.updates = *updates;
    if (now.config.learner.updates < point.checkpoint.update) {
      throw Error(fmt::format("learner.updates = {} is not accepted: the run has made {} updates already",
                              now.config.learner.updates, point.checkpoint.update));
    }
    point.positions = state.at("logs").get<LogPositions>();
    // The dial stays as it was when the run began: a longer run must not change what the replay holds.
    now.config.learner.updates = std::max(now.config.learner.updates, point.checkpoint.update);
    LoadedConfig at_start = now;
    at_start.config.learner.updates = then.config.learner.updates;
    point.plan = make_plan(at_start);
    point.plan.config.learner.updates = now.config.learner.updates;
    const Json& dial = state.at("dial");
    point.plan.capacity = dial.at("capacity").get<std::int64_t>();
    point.plan.env_steps_per_update = dial.at("env_steps_per_update").get<double>();
    point.plan.window = dial.at("window").get<double>();
    point.plan.t_old = dial.at("t_old").get<std::int64_t>();
    point.plan.warmup = dial.at("warmup").get<std::int64_t>();
    point.plan.updates_per_rollout = dial.at("updates_per_rollout").get<std::int64_t>();
    point.plan.run_dir = run_dir;
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("{}: checkpoint {}: state.json: {}", folder, point.checkpoint.update, e.what()));
  }
  return point;
}

}  // namespace gipo
