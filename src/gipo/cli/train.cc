#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "gipo/bench/clock.h"
#include "gipo/cli/commands.h"
#include "gipo/cli/progress.h"
#include "gipo/cli/ranks.h"
#include "gipo/cli/session.h"
#include "gipo/core/error.h"
#include "gipo/plan/automatic.h"
#include "gipo/plan/memory.h"
#include "gipo/plan/option_table.h"
#include "gipo/plan/presets.h"
#include "gipo/plan/zoo.h"
#include "gipo/run/first_weights.h"
#include "gipo/train/trainer.h"

namespace gipo::cli {

ChosenConfig load_training(const TrainArguments& a, const std::optional<RankPlace>& place) {
  const bool automatic = a.config.empty() && a.zoo.empty() && !a.env.empty();
  const std::string config = automatic ? kAutomatic : a.zoo.empty() ? a.config : zoo_preset(a.zoo);
  return choose_config(config, [&](LoadedConfig& loaded) {
    if (!a.env.empty()) set_option(loaded, "env.id", a.env, "--env");
    for (const std::string& assignment : a.overrides) apply_override(loaded, assignment);
    if (a.seed) apply_override(loaded, fmt::format("run.seed={}", *a.seed));
    if (a.env_steps) set_option(loaded, "learner.env_steps", *a.env_steps, "--env-steps");
    if (!a.name.empty()) set_option(loaded, "run.name", a.name, "--name");
    if (!place) return;
    const auto set = loaded.origins.find("learner.ranks");
    if (set != loaded.origins.end()) return refuse_other_ranks(*place, loaded.config.learner.ranks, set->second);
    set_option(loaded, "learner.ranks", std::int64_t{place->ranks}, "WORLD_SIZE");
  });
}

namespace {

nlohmann::ordered_json to_json(const MemoryNeed& need, const MemoryLimit& limit) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::object();
  for (const MemoryNeed::Part& part : need.parts) parts[part.name] = 1e-6 * part.bytes;
  nlohmann::ordered_json out = {{"megabytes", 1e-6 * need.total()}, {"parts", parts}};
  out["limit"] = {{"megabytes", 1e-6 * limit.bytes},  // null: there is none
                  {"used_by_others", 1e-6 * limit.used_by_others},
                  {"of", limit.what}};
  out["fits"] = need.total() <= limit.available();
  return out;
}

std::string in_words(const MemoryNeed& need, const MemoryLimit& limit) {
  std::vector<std::string> parts;
  for (const MemoryNeed::Part& part : need.parts) {
    if (part.bytes >= 5e4) parts.push_back(fmt::format("{} {:.1f}", part.name, 1e-6 * part.bytes));
  }
  return fmt::format("{} ({}); {} has {}", in_bytes(need.total()), fmt::join(parts, ", "), limit.what,
                     in_bytes(limit.bytes));
}

// Somebody who gave nothing to train by: what can be given.
int say_what_there_is() {
  fmt::print(stderr,
             "gipo: train: which config? Give a preset or a TOML file, and a task where it should be another:\n"
             "  gipo train classic/stale\n"
             "  gipo train classic/stale --set env.id=Pendulum-v1\n"
             "  gipo train my.toml\n"
             "  gipo train --env python:my_module:MyEnv      settings are chosen for the task\n"
             "  gipo train --zoo LunarLander-v3              settings that solve a task (gipo list zoo)\n"
             "Presets:\n");
  for (const PresetConfig& preset : preset_configs()) {
    if (!preset.name.starts_with("zoo/")) fmt::print(stderr, "  {:<28} {}\n", preset.name, preset.about());
  }
  fmt::print(stderr, "`gipo list envs` shows the tasks; options alone, as in --set env.id=ID, take the defaults.\n");
  return kUserMistake;
}

// A run that does not fit is shown as well, and then refused as it would be without --dry-run.
int dry_run(const Plan& plan, const Origins& origins, const std::vector<std::string>& chosen, bool json) {
  const MemoryLimit limit = memory_limit();
  const MemoryNeed need = memory_need(plan);
  const bool fits = need.total() <= limit.available();
  const double seconds = fits ? estimate_seconds(plan) : 0;
  if (json) {
    nlohmann::ordered_json out = {
        {"run_dir", plan.run_dir}, {"env_steps", plan.total_env_steps()}, {"updates", plan.config.learner.updates}};
    out["staleness"] = {{"capacity", plan.capacity},
                        {"env_steps_per_update", plan.env_steps_per_update},
                        {"window", plan.window},
                        {"t_old", plan.t_old},
                        {"actors", plan.actors}};
    out["replay_megabytes"] = 1e-6 * static_cast<double>(plan.replay_bytes());
    out["memory"] = to_json(need, limit);
    out["estimated_seconds"] = fits ? nlohmann::ordered_json(seconds) : nullptr;
    out["chosen"] = chosen;
    out["config"] = config_to_toml(plan.config);
    fmt::print("{}\n", out.dump(2));
  } else {
    for (const std::string& line : chosen) fmt::print("# {}\n", line);
    fmt::print("{}\n# run folder: {}\n# dial: {}\n# {} env steps, {} updates\n# time: {}\n# memory: about {}\n",
               config_to_toml(plan.config), plan.run_dir, dial(plan), plan.total_env_steps(),
               plan.config.learner.updates, fits ? "about " + in_time(seconds) + " on this machine" : "not tried",
               in_words(need, limit));
  }
  if (!fits) refuse_what_does_not_fit(plan, origins, limit);
  return kDone;
}

}  // namespace

void tell(const std::vector<std::string>& chosen, RunFolder& folder, bool quiet) {
  for (const std::string& line : chosen) {
    folder.log(line);
    if (!quiet) fmt::print(stderr, "{}\n", line);
  }
}

double estimate_seconds(const Plan& plan) {
  ThreadPool pool(static_cast<std::size_t>(plan.config.run.threads));
  LearnerSetup setup = plan.learner_setup();
  setup.learner.ranks = 1;  // all the work, by this process
  setup.advantage.mode = AdvantageMode::kStored;
  const auto learner = make_learner(setup, RandomStream(1), pool);
  TransitionSpec transition = plan.transition();
  transition.stored = true;
  const Batch batch(static_cast<std::size_t>(plan.config.learner.batch_size), transition);
  Actor actor(actor_spec(plan, 0));
  WeightStore store;
  store.publish(*learner);
  const auto seconds_of = [](auto&& work) {
    work();  // the first may have to start what it needs
    const auto begin = std::chrono::steady_clock::now();
    std::int64_t times = 0;
    double seconds = 0;
    do {
      work();
      ++times;
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    } while (seconds < 0.1);
    return seconds / static_cast<double>(times);
  };
  const double update = seconds_of([&] { learner->update(batch, {0, false}); });
  const double round = seconds_of([&] { actor.step(*store.get(), 0); });
  const double rounds = static_cast<double>(plan.total_env_steps()) / static_cast<double>(plan.envs_per_actor);
  return update * static_cast<double>(plan.config.learner.updates) + round * rounds;
}

int train(const TrainArguments& a) {
  const std::optional<RankPlace> place = rank_place();
  if (place && place->rank > 0) return serve(*place);
  const auto [loaded, chosen] = load_training(a, place);
  const Plan plan = make_plan(loaded);
  if (a.config.empty() && a.zoo.empty() && a.env.empty() && a.overrides.empty() && !a.dry_run)
    return say_what_there_is();
  if (plan.clones()) {
    throw Error(
        fmt::format("{}: clone.data = \"{}\" is not accepted: gipo train learns from what its actors collect; "
                    "leave it out, or use gipo clone",
                    origin_of(loaded.origins, "clone.data"), plan.config.clone.data));
  }
  const std::shared_ptr<const Weights> first = first_weights(plan, loaded.origins);
  if (a.dry_run) return dry_run(plan, loaded.origins, chosen, a.json);
  refuse_what_does_not_fit(plan, loaded.origins);
  if (plan.config.learner.ranks > 1 && !place) {
    return launch_ranks(plan.config.learner, plan.run_dir, [&](Words words) {
      if (list_checkpoints(plan.run_dir + "/" + kCheckpointFolder).empty()) {
        if (!a.overwrite) words.emplace_back("--overwrite");
        return words;
      }
      words = {"resume", plan.run_dir};
      if (a.json) words.emplace_back("--json");
      if (a.quiet) words.emplace_back("--quiet");
      return words;
    });
  }
  const std::shared_ptr<RankGroup> ranks = place ? join_ranks(*place) : nullptr;
  listen_for_signals();
  if (a.overwrite) remove_run(plan.run_dir);
  RunFolder folder(plan, a.command_line, wall_time);
  tell(chosen, folder, a.quiet);
  return run_session(plan, folder, {nullptr, first, nullptr, ranks}, a.json, a.quiet);
}

}  // namespace gipo::cli
