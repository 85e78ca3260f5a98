#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "gipo/api/gipo.h"
#include "gipo/bench/clock.h"
#include "gipo/io/json_text.h"
#include "gipo/learner/ranks.h"
#include "gipo/plan/automatic.h"
#include "gipo/plan/memory.h"
#include "gipo/run/resume.h"
#include "gipo/train/trainer.h"

namespace gipo {
namespace {

TrainerHooks trainer_hooks(const TrainingHooks& hooks) {
  TrainerHooks out;
  out.seconds = [start = steady_time()] { return steady_time() - start; };
  out.progress = [&hooks](const Progress& p) {
    if (!hooks.progress || !p.figures) return;
    hooks.progress({p.update, p.updates, p.env_steps, p.total_env_steps, p.episodes, p.recent_return, p.seconds});
  };
  out.warn = [&hooks](const std::string& text) {
    if (hooks.warn) hooks.warn(text);
  };
  out.stop = hooks.stop;
  return out;
}

TrainingResult run_to_end(const Plan& plan, RunFolder& folder, const Checkpoint* checkpoint,
                          const TrainingHooks& hooks) {
  Trainer trainer(plan, folder, trainer_hooks(hooks));
  if (checkpoint) trainer.restore(*checkpoint);
  trainer.run();
  return read_result(plan.run_dir);
}

double mean_of(const nlohmann::json& returns) {
  const nlohmann::json& mean = returns.at("mean");  // null where no episode ended
  return mean.is_null() ? std::numeric_limits<double>::quiet_NaN() : mean.get<double>();
}

}  // namespace

TrainingResult train(const std::string& config, const std::vector<std::string>& settings, const TrainingHooks& hooks,
                     bool overwrite) {
  const auto [loaded, chosen] = choose_config(config, [&](LoadedConfig& into) {
    for (const std::string& setting : settings) apply_override(into, setting);
  });
  const Plan plan = make_plan(loaded);
  refuse_what_does_not_fit(plan, loaded.origins);
  refuse_ranks(plan.config.learner.ranks);
  if (overwrite) remove_run(plan.run_dir);
  RunFolder folder(plan, "gipo::train", wall_time);
  for (const std::string& line : chosen) folder.log(line);
  return run_to_end(plan, folder, nullptr, hooks);
}

TrainingResult resume(const std::string& run_dir, std::optional<std::int64_t> updates, const TrainingHooks& hooks) {
  if (!std::filesystem::is_directory(run_dir)) throw Error(fmt::format("{}: no such run folder", run_dir));
  const ResumePoint point = find_resume_point(run_dir, {updates, {}});
  refuse_ranks(point.plan.config.learner.ranks);
  if (hooks.warn) {
    for (const std::string& text : point.passed_over) hooks.warn(text);
  }
  RunFolder folder(point.plan, "gipo::resume", wall_time, point.positions);
  return run_to_end(point.plan, folder, &point.checkpoint, hooks);
}

TrainingResult read_result(const std::string& run_dir) {
  const std::string path = run_dir + "/summary.json";
  if (!std::filesystem::exists(path)) throw Error(fmt::format("{}: not there: the run has not ended", path));
  const auto summary = parse_json<nlohmann::json>(read_file(path), path);
  try {
    TrainingResult result;
    result.run_dir = run_dir;
    result.ended = summary.at("ended");
    result.updates = summary.at("updates");
    result.env_steps = summary.at("env_steps");
    result.episodes = summary.at("episodes");
    result.seconds = summary.at("seconds");
    result.final_return = mean_of(summary.at("final_return"));
    result.eval_return = mean_of(summary.at("eval_return"));
    return result;
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("{}: damaged: {}", path, e.what()));
  }
}

}  // namespace gipo
