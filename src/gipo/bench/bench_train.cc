#include <algorithm>

#include "gipo/bench/bench.h"
#include "gipo/bench/clock.h"
#include "gipo/io/temporary_folder.h"
#include "gipo/train/trainer.h"

namespace gipo {
namespace {

constexpr std::int64_t kSlice = 50;  // updates between two looks at the clock

struct Seconds {
  double run = 1e300, update = 1e300;  // of a whole run; of an update, in the slice with the fastest ones
  void keep_best(const Seconds& other) {
    run = std::min(run, other.run);
    update = std::min(update, other.update);
  }
};

// A whole run in a folder of its own, without evaluation.
Seconds seconds_of_run(LoadedConfig config) {
  const TemporaryFolder top;
  config.config.run.dir = top.path();
  config.config.log.every_updates = kSlice;
  config.config.checkpoint.every_updates = 0;
  config.config.eval.episodes = 1;
  const Plan plan = make_plan(config);
  RunFolder folder(plan, "gipo bench", [] { return 0.0; });
  Seconds found;
  TrainerHooks hooks;
  hooks.seconds = steady_time;
  double last = 0;
  hooks.progress = [&](const Progress& p) {
    if (last > 0) found.update = std::min(found.update, (p.seconds - last) / kSlice);
    last = p.seconds;
  };
  const double begin = steady_time();
  Trainer(plan, folder, hooks).run();
  found.run = steady_time() - begin;
  return found;
}

std::vector<BenchRow> measure_lockstep() {
  // Bound by the learner: one environment step for each update.
  LoadedConfig lockstep;
  lockstep.config.env.count = 1;
  lockstep.config.staleness.env_steps_per_update = 1;
  lockstep.config.learner.updates = 5000;
  Seconds one, two;
  for (int i = 0; i < 4; ++i) {  // in turns: a neighbour may slow the machine for seconds
    lockstep.config.run.threads = 1;
    one.keep_best(seconds_of_run(lockstep));
    lockstep.config.run.threads = 2;
    two.keep_best(seconds_of_run(lockstep));
  }
  return {{"train lockstep threads 1", 1 / one.update, "updates/s", "", 0},
          {"train lockstep threads 2", 1 / two.update, "updates/s", "threads 1", one.update / two.update}};
}

std::vector<BenchRow> measure_async() {
  LoadedConfig async;
  Config& c = async.config;
  c.run.mode = RunMode::kAsync;
  c.env.count = 8;
  c.staleness = {};
  c.staleness.regime = Regime::kCustom;
  c.staleness.env_steps_per_update = 256;
  c.replay.capacity = 16384;
  c.replay.segment_length = 32;
  c.learner.batch_size = 512;
  c.learner.updates = 2000;
  Seconds free_running;
  for (int i = 0; i < 3; ++i) free_running.keep_best(seconds_of_run(async));
  const auto env_steps = static_cast<double>(make_plan(async).total_env_steps());
  return {{"train async 16", env_steps / free_running.run, "env steps/s", "", 0}};
}

}  // namespace

std::vector<BenchCase> bench_train() {
  return {{"train lockstep threads 1 and 2", measure_lockstep}, {"train async 16", measure_async}};
}

}  // namespace gipo
