#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gipo/cli/commands.h"
#include "gipo/cli/progress.h"
#include "gipo/core/error.h"
#include "gipo/train/trainer.h"

namespace gipo::cli {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> stop_requested{false};

// The first signal ends the run after the update under way; the second ends the process at once.
extern "C" void on_signal(int) {
  if (stop_requested.exchange(true)) std::_Exit(kInterrupted);
}

LoadedConfig load(const TrainArguments& a) {
  LoadedConfig loaded = a.config.empty() ? LoadedConfig{} : load_config(a.config);
  for (const std::string& assignment : a.overrides) apply_override(loaded, assignment);
  if (a.seed) apply_override(loaded, fmt::format("run.seed={}", *a.seed));
  if (!a.name.empty()) {
    loaded.config.run.name = a.name;
    loaded.origins["run.name"] = "--name";
  }
  return loaded;
}

std::string dial(const Plan& p) {
  const auto updates = static_cast<double>(p.config.learner.updates);
  return fmt::format(
      "window {:.6g} updates ({:.3g} of all) = capacity {} transitions / {:.6g} env steps per update; old from a gap "
      "of {}; {} actors x {} environments",
      p.window, p.window / updates, p.capacity, p.env_steps_per_update, p.t_old, p.actors, p.envs_per_actor);
}

// Seconds for the whole run, from a few updates on made-up data of the run's own shapes.
double estimate_seconds(const Plan& plan) {
  ThreadPool pool(static_cast<std::size_t>(plan.config.run.threads));
  LearnerSetup setup = plan.learner_setup();
  setup.advantage.mode = "stored";
  const auto learner = make_learner(setup, RandomStream(1), pool);
  const Batch batch(static_cast<std::size_t>(plan.config.learner.batch_size), plan.env.observation_size,
                    plan.env.action.dims());
  Actor actor(plan, 0);
  WeightStore store;
  store.publish(*learner);
  const auto seconds_of = [](auto&& work) {
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

int dry_run(const Plan& plan, bool json) {
  const double megabytes = static_cast<double>(plan.replay_bytes()) / 1e6, seconds = estimate_seconds(plan);
  if (json) {
    nlohmann::ordered_json out = {
        {"run_dir", plan.run_dir}, {"env_steps", plan.total_env_steps()}, {"updates", plan.config.learner.updates}};
    out["staleness"] = {{"capacity", plan.capacity},
                        {"env_steps_per_update", plan.env_steps_per_update},
                        {"window", plan.window},
                        {"t_old", plan.t_old}};
    out["replay_megabytes"] = megabytes;
    out["estimated_seconds"] = seconds;
    out["config"] = config_to_toml(plan.config);
    fmt::print("{}\n", out.dump(2));
    return kDone;
  }
  fmt::print(
      "{}\n# run folder: {}\n# dial: {}\n# {} env steps, {} updates\n# memory: about {:.1f} MB of replay\n"
      "# time: about {} on this machine\n",
      config_to_toml(plan.config), plan.run_dir, dial(plan), plan.total_env_steps(), plan.config.learner.updates,
      megabytes, in_time(seconds));
  return kDone;
}

// Only a folder that looks like a run is removed.
void remove_earlier(const std::string& path) {
  if (!fs::exists(path)) return;
  if (!fs::exists(path + "/config.toml") || !fs::exists(path + "/metrics.jsonl")) {
    throw Error(
        fmt::format("--overwrite: {} exists but does not look like a run folder (no config.toml and "
                    "metrics.jsonl): remove it by hand",
                    path));
  }
  fs::remove_all(path);
}

std::string in_words(const ReturnStats& s) {
  return s.episodes == 0 ? "no episode" : fmt::format("{:.1f} +- {:.1f} ({} episodes)", s.mean, s.std, s.episodes);
}

void print_result(const Plan& plan, const RunSummary& s) {
  fmt::print("{}: {} after {} updates, {} env steps, {:.1f} s\n", plan.name, s.ended, s.updates, s.env_steps,
             s.seconds);
  fmt::print("  training return, last 100 episodes: {}\n", in_words(s.final_return));
  if (s.ended == "finished") fmt::print("  greedy evaluation:                  {}\n", in_words(s.eval_return));
  for (const auto& [name, value] : window_means(plan.run_dir + "/metrics.jsonl")) {
    for (const char* shown :
         {"old_frac", "old_gap_p95", "d95", "dead_frac", "near_zero_frac", "share_old", "ess_old_norm"}) {
      if (name == shown) fmt::print("  {:<35} {:.4g}\n", name + ", last 20%:", value);
    }
  }
  fmt::print("  files in {}\n", plan.run_dir);
}

}  // namespace

int train(const TrainArguments& a) {
  const Plan plan = make_plan(load(a));
  if (a.dry_run) return dry_run(plan, a.json);
  if (a.overwrite) remove_earlier(plan.run_dir);

  const auto start = std::chrono::steady_clock::now();
  const auto wall_time = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  RunFolder folder(plan, a.command_line, wall_time);
  ProgressLine line(plan.name, a.quiet);
  if (!a.quiet) fmt::print(stderr, "{}: {}\n", plan.name, dial(plan));

  TrainerHooks hooks;
  hooks.seconds = [start] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  hooks.progress = [&](const Progress& p) { line.show(p); };
  hooks.stop = &stop_requested;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  const RunSummary result = Trainer(plan, folder, hooks).run();
  line.end();

  if (a.json) {
    auto summary = nlohmann::ordered_json::parse(read_file(plan.run_dir + "/summary.json"));
    summary["run_dir"] = plan.run_dir;
    fmt::print("{}\n", summary.dump(2));
  } else {
    print_result(plan, result);
  }
  return result.ended == "finished" ? kDone : kInterrupted;
}

}  // namespace gipo::cli
