#include "gipo/train/trainer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <sstream>

#include "gipo/core/bytes.h"
#include "gipo/core/error.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;

// A task that gives numbers that are not finite when told to: every `period`-th step, over all its copies.
struct Trouble {
  std::atomic<int> period{0}, steps{0};
  std::atomic<bool> in_reward{false};
} trouble;

class Faulty final : public Env {
 public:
  Faulty() : Env({"Faulty-v0", "for tests", 1, ActionSpace::discrete(2), 30}) {}
  void observe(std::span<double> observation) const override { observation[0] = bad_ ? std::nan("") : state_; }
  void save_physics(ByteWriter& out) const override { out.value(state_); }
  void load_physics(ByteReader& in) override { state_ = in.value<double>(); }

 private:
  void start_episode(RandomStream& random) override { state_ = random.uniform(), bad_ = false; }
  Outcome advance(std::span<const double> action) override {
    state_ = 0.9 * state_ + action[0];
    const bool due = trouble.period > 0 && ++trouble.steps % trouble.period == 0;
    bad_ = due && !trouble.in_reward;
    return {due && trouble.in_reward ? HUGE_VAL : state_, false};
  }
  double state_ = 0;
  bool bad_ = false;
};
const RegisterEnv kFaulty{{"Faulty-v0", "for tests", 1, ActionSpace::discrete(2), 30},
                          [] { return std::make_unique<Faulty>(); }};

// A folder of its own for each test, removed afterwards.
class Training : public ::testing::Test {
 protected:
  Training() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::temp_directory_path() / ("gipo-" + std::string(info->name()) + "-" + std::to_string(::getpid()));
    fs::remove_all(dir_);
    loaded_.config.run.dir = dir_.string();
    loaded_.config.env.count = 2;
    loaded_.config.policy.hidden = {8};
    loaded_.config.learner.batch_size = 64;
    loaded_.config.learner.updates = 60;
    loaded_.config.replay.segment_length = 16;
    loaded_.config.eval.episodes = 2;
    loaded_.config.log.every_updates = 5;
  }
  ~Training() override {
    fs::remove_all(dir_);
    trouble.period = 0;
  }

  RunSummary run(const std::string& name) {
    loaded_.config.run.name = name;
    const Plan plan = make_plan(loaded_);
    RunFolder folder(plan, "test", [] { return 0.0; });
    TrainerHooks hooks;
    hooks.seconds = [] { return 0.0; };
    hooks.progress = [this](const Progress& p) { last_ = p; };
    hooks.stop = &stop_;
    hooks.warn = [this](const std::string& text) { warnings_ += text + "\n"; };
    return Trainer(plan, folder, hooks).run();
  }
  std::string file(const std::string& run, const std::string& name) { return read_file((dir_ / run / name).string()); }
  void expect_same(const std::string& a, const std::string& b) {
    for (const char* name : {"metrics.jsonl", "episodes.jsonl", "evaluations.jsonl", "policy.safetensors"}) {
      EXPECT_EQ(file(a, name), file(b, name)) << name;
    }
  }

  fs::path dir_;
  LoadedConfig loaded_;
  std::atomic<bool> stop_{false};
  Progress last_;
  std::string warnings_;
};

TEST_F(Training, LockstepRepeatsByteForByteWhateverTheThreads) {
  loaded_.config.eval.every_updates = 20;
  const RunSummary a = run("a"), b = run("b");
  loaded_.config.run.threads = 3;
  const RunSummary c = run("c");
  expect_same("a", "b");
  expect_same("a", "c");
  EXPECT_EQ(a.replay_fingerprint, c.replay_fingerprint);
  EXPECT_EQ(a.weights_fingerprint, c.weights_fingerprint);
  loaded_.config.run.seed = 2;
  EXPECT_NE(run("d").weights_fingerprint, a.weights_fingerprint);
}

TEST_F(Training, LockstepTakesTheStepsThatAreDue) {
  loaded_.config.staleness.env_steps_per_update = 3;  // not a multiple of the environments
  const RunSummary s = run("a");
  EXPECT_EQ(s.updates, 60);
  const std::int64_t due = 256 + 59 * 3;
  EXPECT_GE(s.env_steps, due);
  EXPECT_LT(s.env_steps, due + 4);
  EXPECT_EQ(last_.update, 60);
}

TEST_F(Training, OnPolicyLearnsFromEachRolloutAloneAndStartsAtRatioOne) {
  auto& c = loaded_.config;
  c.staleness.regime = "on_policy";
  c.staleness.actors = 1;
  c.advantage.mode = "stored";
  c.replay.capacity = 128;
  c.replay.segment_length.reset();
  c.learner.epochs = 3;  // 6 updates per rollout
  c.log.every_updates = 1;
  c.surrogate.name = "ppo";
  const RunSummary s = run("a");
  EXPECT_EQ(s.env_steps, 10 * 128);
  EXPECT_EQ(s.replay_size, 128u);
  const std::string metrics = file("a", "metrics.jsonl");
  std::istringstream lines(metrics);
  std::string line;
  for (int update = 1; std::getline(lines, line); ++update) {
    const auto figure = [&](const std::string& name) {
      return std::strtod(line.c_str() + line.find("\"" + name + "\":") + name.size() + 3, nullptr);
    };
    // The gap within a rollout counts its updates; nothing of an earlier rollout is left.
    EXPECT_DOUBLE_EQ(figure("gap_mean"), (update - 1) % 6) << update;
    if (update % 6 == 1) {
      EXPECT_NEAR(figure("d95"), 0, 1e-4) << update;
    }
  }
}

TEST_F(Training, InterruptionSavesThePolicyAndSaysSo) {
  stop_ = true;
  const RunSummary s = run("a");
  EXPECT_EQ(s.ended, "interrupted");
  EXPECT_TRUE(fs::exists(dir_ / "a" / "policy.safetensors"));
  EXPECT_TRUE(fs::exists(dir_ / "a" / "summary.json"));
}

TEST_F(Training, ARunThatDivergesEndsByNameWithItsSummary) {
  loaded_.config.env.reward_scale = 1e36;
  loaded_.config.learner.value_coef = 1e6;  // the gradient is beyond a float
  loaded_.config.learner.max_bad_updates = 2;
  EXPECT_THROW(run("a"), RunError);
  EXPECT_NE(file("a", "summary.json").find("failed: "), std::string::npos);
}

TEST_F(Training, AsyncReachesItsEndAtThePaceOfTheDial) {
  auto& c = loaded_.config;
  c.run.mode = "async";
  c.learner.updates = 300;
  c.eval.every_updates = 100;
  const RunSummary s = run("a");
  EXPECT_EQ(s.updates, 300);
  EXPECT_EQ(s.ended, "finished");
  const std::int64_t due = 256 + 299 * 8;
  EXPECT_GE(s.env_steps, due);
  EXPECT_LE(s.env_steps, due + 8 + 32 + 4);  // one update, the slack, the steps under way
  EXPECT_GT(s.episodes, 0);
}

TEST_F(Training, AsyncFreeRunsWithoutPace) {
  loaded_.config.run.mode = "async";
  loaded_.config.staleness.pacing = "free";
  EXPECT_EQ(run("a").ended, "finished");
}

TEST_F(Training, AsyncHandsAThreadsErrorToTheCaller) {
  loaded_.config.run.mode = "async";
  loaded_.config.env.reward_scale = 1e36;
  loaded_.config.learner.value_coef = 1e6;  // the gradient is beyond a float
  loaded_.config.learner.max_bad_updates = 2;
  EXPECT_THROW(run("a"), RunError);
}

// Observation or reward, lockstep or async: the segment is dropped, counted and named; nothing of it is learned from.
TEST_F(Training, NumbersThatAreNotFiniteAreRejectedCountedAndNamedAsyncToo) {
  loaded_.config.env.id = "Faulty-v0";
  for (const bool in_reward : {false, true}) {
    for (const char* mode : {"lockstep", "async"}) {
      trouble.in_reward = in_reward;
      trouble.period = 97;
      warnings_.clear();
      loaded_.config.run.mode = mode;
      const std::string name = std::string(mode) + (in_reward ? "-reward" : "-observation");
      const RunSummary s = run(name);
      EXPECT_EQ(s.ended, "finished");
      EXPECT_GT(s.rejected_segments, 2u);
      const char* fault = in_reward ? "reward_not_finite" : "observation_not_finite";
      EXPECT_EQ(s.faults, (FaultCounts{{fault, s.rejected_segments}}));
      EXPECT_EQ(s.skipped_updates, 0);
      EXPECT_NE(warnings_.find("Faulty-v0) gave "), std::string::npos) << warnings_;
      EXPECT_NE(warnings_.find(in_reward ? "reward" : "observation"), std::string::npos) << warnings_;
      const Plan plan = make_plan(loaded_);
      const Weights weights = weights_from_safetensors(plan.model, file(name, "policy.safetensors"), name);
      for (const float w : weights.policy) ASSERT_TRUE(std::isfinite(w));
    }
  }
}

TEST_F(Training, AnEnvironmentThatKeepsFailingIsStoppedByNameAsyncToo) {
  loaded_.config.env.id = "Faulty-v0";
  for (const char* mode : {"lockstep", "async"}) {
    trouble.in_reward = false;
    trouble.period = 3;
    loaded_.config.run.mode = mode;
    try {
      run(mode);
      FAIL() << "went on";
    } catch (const RunError& e) {
      EXPECT_NE(std::string(e.what()).find("(Faulty-v0) gave an observation"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("10 times in a row"), std::string::npos) << e.what();
    }
    EXPECT_NE(file(mode, "summary.json").find("failed: environment"), std::string::npos);
  }
}

TEST_F(Training, ActorGoesOnIdenticallyAfterSaveAndLoad) {
  const Plan plan = make_plan(loaded_);
  Weights weights;
  weights.policy.resize(plan.model.policy_parameters());
  weights.critic.resize(plan.model.critic_parameters());
  weights.scale = ObservationScale::identity(plan.env.observation_size);
  RandomStream random(1);
  initialise_policy<float>(plan.model, weights.policy, random);
  initialise_critic<float>(plan.model, weights.critic, random);

  Actor one(plan, 0), two(plan, 1);
  ReplayBuffer replay(plan.replay_shape(), RandomStream(1));
  std::vector<Episode> episodes;
  for (int i = 0; i < 10; ++i) one.step(weights, i);
  one.drain(replay, episodes);
  ByteWriter saved;
  one.save(saved);
  ByteReader in(saved.bytes());
  two.load(in);
  EXPECT_EQ(in.left(), 0u);
  for (int i = 10; i < 60; ++i) {
    one.step(weights, i);
    two.step(weights, i);
  }
  ByteWriter after_one, after_two;
  one.save(after_one);
  two.save(after_two);
  EXPECT_EQ(after_one.bytes(), after_two.bytes());
}

}  // namespace
}  // namespace gipo
