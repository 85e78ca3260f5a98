// Runs that are stopped at any moment: in the warm-up, in a collection, in an evaluation, by another thread's doing.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/train/small_runs.h"

namespace gipo {
namespace {

// A task that calls the test at every step, of training and evaluations alike.
struct Watch {
  std::atomic<std::int64_t> steps{0}, stop_at{-1};  // of all its copies; the step that sets `stop`
  std::atomic<bool> stop{false};
  std::atomic<double> reward{1};
  std::atomic<bool> bad_observation{false}, bad_start{false};
  std::atomic<int> bad_every{0};  // steps
} watch;

class Watched final : public Env {
 public:
  Watched() : Env(watched_spec()) {}
  static EnvSpec watched_spec() { return {"Watched-v0", "for tests", 1, ActionSpace::discrete(2), 30}; }
  void observe(std::span<double> observation) const override { observation[0] = bad_ ? std::nan("") : state_; }
  void save_physics(ByteWriter& out) const override { out.value(state_); }
  void load_physics(ByteReader& in) override { state_ = in.value<double>(); }

 private:
  void start_episode(RandomStream& random) override {
    state_ = random.uniform();
    bad_ = watch.bad_start;
  }
  Outcome advance(std::span<const double> action) override {
    const std::int64_t step = ++watch.steps;
    if (step == watch.stop_at) watch.stop = true;
    state_ = 0.9 * state_ + action[0];
    const bool due = watch.bad_every > 0 && step % watch.bad_every == 0;
    bad_ = due && watch.bad_observation;
    return {due && !watch.bad_observation ? std::nan("") : watch.reward * state_, false};
  }
  double state_ = 0;
  bool bad_ = false;
};
const RegisterEnv kWatched{Watched::watched_spec(), [] { return std::make_unique<Watched>(); }};

class Interruption : public SmallRuns, public ::testing::Test {
 protected:
  Interruption() {
    watch.steps = 0, watch.stop_at = -1, watch.stop = false, watch.reward = 1;
    watch.bad_every = 0, watch.bad_observation = watch.bad_start = false;
    loaded_.config.env.id = "Watched-v0";
    loaded_.config.eval.episodes = 5;
    loaded_.config.eval.every_updates = 20;
    hooks_.progress = [this](const Progress& p) {
      if (on_progress_) on_progress_(p);
    };
    hooks_.stop = &watch.stop;
  }
  RunSummary go_on(const std::string& name) {
    watch.stop = false;
    return SmallRuns::go_on(name);
  }
  Checkpoint newest(const std::string& name) {
    std::vector<std::string> passed_over;
    return newest_checkpoint(dir_ / name + "/checkpoints", passed_over).value();
  }
  // Stopped at each of these steps and resumed, a run ends as if it had been left alone.
  void expect_same_when_stopped(const std::vector<double>& moments) {
    const RunSummary whole = run("whole");
    const std::int64_t all = watch.steps;
    for (const double moment : moments) {
      const std::string name = "stopped-" + std::to_string(moment);
      watch.steps = 0;
      watch.stop_at = static_cast<std::int64_t>(moment * static_cast<double>(all));
      const RunSummary stopped = run(name);
      EXPECT_EQ(stopped.ended, "interrupted") << name;
      watch.stop_at = -1;
      const RunSummary s = go_on(name);
      EXPECT_EQ(s.ended, "finished");
      EXPECT_EQ(s.weights_fingerprint, whole.weights_fingerprint) << name;
      EXPECT_EQ(s.replay_fingerprint, whole.replay_fingerprint) << name;
      EXPECT_EQ(s.eval_return.mean, whole.eval_return.mean) << name;
      for (const char* log : {"metrics.jsonl", "episodes.jsonl", "evaluations.jsonl", "policy.safetensors"}) {
        EXPECT_EQ(read_file(dir_ / name + "/" + log), read_file(dir_ / "whole" + "/" + log)) << name << " " << log;
      }
    }
  }

  std::function<void(const Progress&)> on_progress_;
};

TEST_F(Interruption, StoppedAnywhereALockstepRunEndsWithTheSameBytes) {
  // A warm-up of 3,000 steps, updates with evaluations between them, and the last evaluation.
  loaded_.config.staleness.warmup = 3000;
  expect_same_when_stopped({0.01, 0.2, 0.45, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99});
}

TEST_F(Interruption, StoppedInTheMiddleOfARolloutAnOnPolicyRunEndsWithTheSameBytes) {
  Config& c = loaded_.config;
  c.staleness.regime = Regime::kOnPolicy;
  c.staleness.actors = 1;
  c.advantage.mode = AdvantageMode::kStored;
  c.replay.capacity = 3072;
  c.replay.segment_length = 40;
  c.learner.batch_size = 1024;
  c.learner.epochs = 2;
  c.learner.updates = 24;
  c.eval.every_updates = 6;
  expect_same_when_stopped({0.05, 0.3, 0.37, 0.55, 0.8, 0.9, 0.999});
}

TEST_F(Interruption, AWarmUpIsShownAndStopsWithoutWaitingForItsEnd) {
  loaded_.config.staleness.warmup = 1'000'000;
  for (const RunMode run_mode : {RunMode::kLockstep, RunMode::kAsync}) {
    const std::string mode = word_of(run_mode);
    loaded_.config.run.mode = run_mode;
    watch.stop = false;
    std::int64_t shown = 0;
    on_progress_ = [&](const Progress& p) {
      EXPECT_EQ(p.figures, nullptr);
      EXPECT_EQ(p.warmup, 1'000'000);
      if (++shown == 3) watch.stop = true;
    };
    const RunSummary s = run(mode);
    EXPECT_EQ(s.ended, "interrupted");
    EXPECT_EQ(s.updates, 0);
    EXPECT_GT(s.env_steps, 0);
    EXPECT_LT(s.env_steps, 900'000) << mode;
    EXPECT_EQ(list_checkpoints(dir_ / mode + "/checkpoints"), (std::vector<std::int64_t>{0}));
  }
}

// A run that fails is saved without its actors: those that go on are another incarnation, whose segments the replay takes
// beside the ones it holds. A checkpoint of theirs must say so, or the run that goes on from it begins at the marks of
// the failed one: its segments would be refused, or taken for others.
TEST_F(Interruption, AfterAFailureALockstepRunCanBeStoppedAndResumedAgain) {
  loaded_.config.staleness.warmup = 500;
  watch.bad_observation = true;
  const auto fail = [&](const std::string& name) {
    watch.steps = 0, watch.bad_every = 0;
    on_progress_ = [](const Progress& p) {
      if (p.update == 20) watch.bad_every = 1;
    };
    EXPECT_THROW(run(name), RunError);
    watch.steps = 0, watch.bad_every = 0;
    on_progress_ = nullptr;
    return newest(name);
  };
  const Checkpoint failed = fail("whole");
  EXPECT_TRUE(failed.has("episodes.bin")) << "without actors";
  const RunSummary whole = go_on("whole");
  const std::int64_t steps = watch.steps;
  EXPECT_EQ(whole.ended, "finished");

  EXPECT_EQ(fail("again").update, failed.update);
  watch.stop_at = steps / 3;
  const RunSummary first = go_on("again");
  EXPECT_EQ(first.ended, "interrupted");
  EXPECT_TRUE(newest("again").has("actors.bin"));
  watch.stop_at = steps * 2 / 3;
  const RunSummary second = go_on("again");
  EXPECT_EQ(second.ended, "interrupted");
  EXPECT_GT(second.env_steps, first.env_steps);
  const RunSummary last = go_on("again");
  EXPECT_EQ(last.ended, "finished");
  EXPECT_GT(last.env_steps, second.env_steps);
  EXPECT_EQ(last.env_steps, whole.env_steps);
  EXPECT_EQ(last.rejected_segments, whole.rejected_segments) << "none but those of the failure";
  EXPECT_EQ(last.replay_fingerprint, whole.replay_fingerprint);
  EXPECT_EQ(last.weights_fingerprint, whole.weights_fingerprint);
}

// Episodes that were under way when the target was reached must not take it back.
TEST_F(Interruption, ASolvedRunStaysSolvedAsyncToo) {
  Config& c = loaded_.config;
  c.run.target_return = 0;
  c.log.every_updates = 1;
  c.learner.updates = 100'000;
  c.staleness.pacing = Pacing::kFree;
  for (const RunMode run_mode : {RunMode::kLockstep, RunMode::kAsync}) {
    const std::string mode = word_of(run_mode);
    c.run.mode = run_mode;
    watch.reward = 1;
    on_progress_ = [](const Progress& p) {
      if (!p.figures || p.episodes < 100) return;
      watch.reward = -1e6;
      const std::int64_t seen = watch.steps;  // actors go on until the learner says that it is enough
      for (int i = 0; i < 200 && watch.steps < seen + 5000; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    };
    const RunSummary s = run(mode);
    EXPECT_EQ(s.ended, "solved") << mode;
    EXPECT_EQ(s.eval_return.episodes, 5);
    EXPECT_EQ(go_on(mode).ended, "solved") << mode;
  }
}

TEST_F(Interruption, FaultsOfAnEvaluationAreCountedAndNamedAsyncToo) {
  for (const bool observation : {true, false}) {
    for (const RunMode run_mode : {RunMode::kLockstep, RunMode::kAsync}) {
      const std::string mode = word_of(run_mode);
      const std::string name = mode + (observation ? "-observation" : "-reward");
      loaded_.config.run.mode = run_mode;
      loaded_.config.eval.every_updates = 0;
      watch.bad_every = 0;
      watch.bad_observation = observation;
      warnings_.clear();
      on_progress_ = [](const Progress& p) {
        if (p.update == p.updates) watch.bad_every = 100;  // the evaluation takes 150 steps
      };
      const RunSummary s = run(name);
      EXPECT_EQ(s.ended, "finished");
      EXPECT_EQ(s.eval_return.episodes, 5);
      EXPECT_TRUE(std::isfinite(s.eval_return.mean));
      const std::string fault = observation ? "observation_not_finite" : "reward_not_finite";
      ASSERT_EQ(s.eval_faults.size(), 1u) << name;
      EXPECT_GE(s.eval_faults.at(fault), 1u);
      EXPECT_NE(warnings_.find("evaluation at update 60"), std::string::npos) << warnings_;
      EXPECT_NE(warnings_.find(fault), std::string::npos) << warnings_;
      EXPECT_NE(read_file(dir_ / name + "/evaluations.jsonl").find(fault), std::string::npos);
      EXPECT_NE(read_file(dir_ / name + "/summary.json").find("\"eval_faults\""), std::string::npos);
    }
  }
}

TEST_F(Interruption, AnEvaluationInWhichNoEpisodeIsWholeEndsTheRunByName) {
  loaded_.config.eval.every_updates = 0;
  for (const bool start : {false, true}) {
    watch.bad_every = 0;
    watch.bad_start = false;
    on_progress_ = [&](const Progress& p) {
      if (p.update != p.updates) return;
      watch.bad_every = start ? 0 : 1;
      watch.bad_start = start;
    };
    try {
      run(start ? "start" : "step");
      FAIL() << "a return from numbers that are not finite";
    } catch (const RunError& e) {
      EXPECT_NE(std::string(e.what()).find("Watched-v0 gave"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("10 times in a row"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace gipo
