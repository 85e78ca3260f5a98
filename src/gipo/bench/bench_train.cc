#include <algorithm>
#include <chrono>

#include "gipo/bench/bench.h"
#include "gipo/core/temporary_folder.h"
#include "gipo/train/trainer.h"

namespace gipo {
namespace {

// Seconds of a whole run in a folder of its own, without evaluation; the best of three.
double seconds_of_run(const LoadedConfig& loaded) {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  double best = 1e300;
  for (int i = 0; i < 3; ++i) {
    const TemporaryFolder top;
    LoadedConfig config = loaded;
    config.config.run.dir = top.path();
    config.config.log.every_updates = 100;
    config.config.checkpoint.every_updates = 0;
    config.config.eval.episodes = 1;
    const Plan plan = make_plan(config);
    RunFolder folder(plan, "gipo bench", [] { return 0.0; });
    TrainerHooks hooks;
    hooks.seconds = now;
    const double begin = now();
    Trainer(plan, folder, hooks).run();
    best = std::min(best, now() - begin);
  }
  return best;
}

}  // namespace

std::vector<BenchRow> bench_train() {
  // Bound by the learner: one environment step for each update.
  LoadedConfig lockstep;
  lockstep.config.env.count = 1;
  lockstep.config.staleness.env_steps_per_update = 1;
  lockstep.config.learner.updates = 5000;
  const double one = seconds_of_run(lockstep);
  lockstep.config.run.threads = 2;
  const double two = seconds_of_run(lockstep);

  LoadedConfig async;
  Config& c = async.config;
  c.run.mode = "async";
  c.env.count = 8;
  c.staleness = {};
  c.staleness.regime = "custom";
  c.staleness.env_steps_per_update = 256;
  c.replay.capacity = 16384;
  c.replay.segment_length = 32;
  c.learner.batch_size = 512;
  c.learner.updates = 2000;
  const double free_running = seconds_of_run(async);

  const auto updates = static_cast<double>(lockstep.config.learner.updates);
  return {
      {"train lockstep threads 1", updates / one, "updates/s", "", 0},
      {"train lockstep threads 2", updates / two, "updates/s", "threads 1", one / two},
      {"train async 16", static_cast<double>(make_plan(async).total_env_steps()) / free_running, "env steps/s", "", 0}};
}

}  // namespace gipo
