#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gipo/plan/plan.h"
#include "gipo/run/checkpoint.h"
#include "gipo/run/run_folder.h"

namespace gipo {

// All that is needed to go on with a run.
struct ResumePoint {
  Plan plan;
  Checkpoint checkpoint;
  LogPositions positions;
  std::vector<std::string> passed_over;  // damaged checkpoints that are newer, a line each
};

// How long a resumed run is to be, in updates or in env steps since its beginning; neither: as its config says.
struct RunLength {
  std::optional<std::int64_t> updates = {}, env_steps = {};
};

// Reads the run's config and its newest whole checkpoint. Throws Error where there is no checkpoint, where the config was
// changed in a way that would make another run of it, or where the run is longer than `length` already.
ResumePoint find_resume_point(const std::string& run_dir, const RunLength& length = {});

// The plan of a config whose length was another when the dial was made; the dial stays as it was then: a longer run must
// not change what the replay holds.
Plan plan_with_dial_of(LoadedConfig config, std::int64_t updates_then);

// Parts of a checkpoint's state.json, checked: where its logs end, learner.updates when the dial was made, and the dial
// of the run's beginning, put in place of the plan's own. They throw Error or a JSON exception.
LogPositions read_positions(const nlohmann::json& state);
std::int64_t dial_updates(const nlohmann::json& state);
void take_dial(const nlohmann::json& state, Plan& plan);

// Throws Error, naming the first option that differs and may not. What may: run.dir, run.name, run.threads,
// run.target_return, learner.updates, learner.env_steps, learner.ranks, env.python, env.workers, env.max_deaths,
// env.step_timeout and all of eval, log and checkpoint.
void refuse_changes(const Config& then, const Config& now, const std::string& where);
bool may_change(std::string_view key);  // one of those

}  // namespace gipo
