#include "gipo/train/trainer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "gipo/core/error.h"
#include "gipo/core/message_of.h"
#include "gipo/io/bytes.h"
#include "gipo/plan/option_table.h"
#include "gipo/run/export.h"
#include "gipo/run/first_weights.h"
#include "gipo/train/small_runs.h"

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

// Its rewards are in units of the test's choice.
std::atomic<double> units{1};

class Units final : public Env {
 public:
  Units() : Env({"Units-v0", "for tests", 1, ActionSpace::discrete(2), 30}) {}
  void observe(std::span<double> observation) const override { observation[0] = state_; }
  void save_physics(ByteWriter& out) const override { out.value(state_); }
  void load_physics(ByteReader& in) override { state_ = in.value<double>(); }

 private:
  void start_episode(RandomStream& random) override { state_ = random.uniform(); }
  Outcome advance(std::span<const double> action) override {
    state_ = 0.9 * state_ + action[0];
    return {units * state_, false};
  }
  double state_ = 0;
};
const RegisterEnv kUnits{{"Units-v0", "for tests", 1, ActionSpace::discrete(2), 30},
                         [] { return std::make_unique<Units>(); }};

class Training : public SmallRuns, public ::testing::Test {
 protected:
  Training() {
    loaded_.config.eval.episodes = 2;
    hooks_.progress = [this](const Progress& p) { last_ = p; };
    hooks_.stop = &stop_;
  }
  ~Training() override { trouble.period = 0; }

  // Environment and number of every episode in the log.
  std::vector<std::pair<std::int64_t, std::int64_t>> episodes(const std::string& run) {
    std::vector<std::pair<std::int64_t, std::int64_t>> all;
    std::istringstream lines(file(run, "episodes.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      all.emplace_back(json.at("env").get<std::int64_t>(), json.at("episode").get<std::int64_t>());
    }
    return all;
  }
  void expect_same(const std::string& a, const std::string& b) {
    for (const char* name : {"metrics.jsonl", "episodes.jsonl", "evaluations.jsonl", "policy.safetensors"}) {
      EXPECT_EQ(file(a, name), file(b, name)) << name;
    }
  }

  std::atomic<bool> stop_{false};
  Progress last_;
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
  c.staleness.regime = Regime::kOnPolicy;
  c.staleness.actors = 1;
  c.advantage.mode = AdvantageMode::kStored;
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

// Rewards that differ by a power of two, with the deviation divided out, are the same rewards.
TEST_F(Training, NormalisedRewardsTeachTheSameInAnyUnits) {
  auto& c = loaded_.config;
  c.env.id = "Units-v0";
  c.env.normalise_rewards = true;
  const auto value_loss = [&](const std::string& name, double unit) {
    units = unit;
    run(name);
    std::istringstream lines(file(name, "metrics.jsonl"));
    double sum = 0;
    for (std::string line; std::getline(lines, line);)
      sum += nlohmann::json::parse(line).at("value_loss").get<double>();
    return sum;
  };
  const double replayed = value_loss("a", 1);
  EXPECT_NEAR(value_loss("b", 1024), replayed, 1e-3 * replayed);
  c.staleness.regime = Regime::kOnPolicy;
  c.staleness.actors = 1;
  c.advantage.mode = AdvantageMode::kStored;
  c.replay.capacity = 128;
  const double stored = value_loss("c", 1);
  EXPECT_NEAR(value_loss("d", 1024), stored, 1e-3 * stored);
  c.env.normalise_rewards = false;
  EXPECT_GT(value_loss("e", 1024), 1000 * stored);
}

// 100 short episodes suffice; resumed it stays solved, and with another aim it goes on.
TEST_F(Training, ARunThatReachesItsTargetEndsAsSolvedAsyncToo) {
  loaded_.config.learner.updates = 3000;
  for (const RunMode run_mode : {RunMode::kLockstep, RunMode::kAsync}) {
    const std::string mode = word_of(run_mode);
    loaded_.config.run.mode = run_mode;
    loaded_.config.run.target_return = 8;
    const RunSummary s = run(mode);
    EXPECT_EQ(s.ended, "solved");
    EXPECT_LT(s.updates, 3000);
    EXPECT_GE(s.final_return.mean, 8);
    EXPECT_EQ(s.final_return.episodes, 100);
    EXPECT_GT(s.eval_return.episodes, 0);
    const RunSummary again = go_on(mode);
    EXPECT_EQ(again.ended, "solved");
    EXPECT_EQ(again.updates, s.updates);
    loaded_.config.run.target_return = 1e9;
    loaded_.config.learner.updates = s.updates + 20;
    write_file_atomic(dir_ / mode + "/config.toml", config_to_toml(loaded_.config));
    EXPECT_EQ(go_on(mode).ended, "finished");
    loaded_.config.learner.updates = 3000;
  }
}

// The evaluation that ended it is its last one: a resumed run does not play it again.
TEST_F(Training, ARunWhoseEvaluationReachesItsTargetEndsAsSolvedAsyncToo) {
  loaded_.config.learner.updates = 3000;
  loaded_.config.eval.every_updates = 10;
  for (const RunMode run_mode : {RunMode::kLockstep, RunMode::kAsync}) {
    const std::string mode = word_of(run_mode);
    loaded_.config.run.mode = run_mode;
    loaded_.config.eval.target_return = 1;
    const RunSummary s = run(mode);
    EXPECT_EQ(s.ended, "solved");
    EXPECT_LT(s.updates, 3000);
    EXPECT_GE(s.eval_return.mean, 1);
    const std::string evaluations = read_file(dir_ / mode + "/evaluations.jsonl");
    const RunSummary again = go_on(mode);
    EXPECT_EQ(again.ended, "solved");
    EXPECT_EQ(again.updates, s.updates);
    EXPECT_EQ(again.eval_return.mean, s.eval_return.mean);
    if (run_mode == RunMode::kLockstep) {
      EXPECT_EQ(s.updates, 10);
      EXPECT_EQ(read_file(dir_ / mode + "/evaluations.jsonl"), evaluations);
    }
    loaded_.config.eval.target_return = 1e9;
    loaded_.config.learner.updates = s.updates + 20;
    write_file_atomic(dir_ / mode + "/config.toml", config_to_toml(loaded_.config));
    EXPECT_EQ(go_on(mode).ended, "finished");
    loaded_.config.learner.updates = 3000;
  }
}

TEST_F(Training, InterruptionSavesThePolicyAndSaysSo) {
  stop_ = true;
  const RunSummary s = run("a");
  EXPECT_EQ(s.ended, "interrupted");
  EXPECT_TRUE(fs::exists(dir_ / "a/policy.safetensors"));
  EXPECT_TRUE(fs::exists(dir_ / "a/summary.json"));
}

TEST_F(Training, ARunThatDivergesEndsByNameWithItsSummary) {
  loaded_.config.env.reward_scale = 1e36;
  loaded_.config.learner.value_coef = 1e6;  // the gradient is beyond a float
  loaded_.config.learner.max_bad_updates = 2;
  EXPECT_THROW(run("a"), RunError);
  EXPECT_NE(file("a", "summary.json").find("failed: "), std::string::npos);
}

// A second failure, while the first is handled, is told beside it.
TEST_F(Training, WhyARunFailedIsSeenWhenItsFilesCannotBeWrittenEither) {
  loaded_.config.env.reward_scale = 1e36;
  loaded_.config.learner.value_coef = 1e6;
  loaded_.config.learner.max_bad_updates = 2;
  loaded_.config.run.name = "a";
  const Plan plan = make_plan(loaded_);
  RunFolder folder(plan, "test", [] { return 0.0; });
  fs::create_directories(dir_ / "a/policy.safetensors/in the way");
  try {
    Trainer(plan, folder, hooks_).run();
    FAIL() << "it did not fail";
  } catch (const RunError& e) {
    EXPECT_NE(std::string(e.what()).find("finite"), std::string::npos) << e.what();
  }
  EXPECT_NE(warnings_.find("while the run was being ended: cannot replace"), std::string::npos) << warnings_;
  EXPECT_NE(file("a", "summary.json").find("failed: "), std::string::npos) << "the rest is still written";
}

TEST_F(Training, AsyncReachesItsEndAtThePaceOfTheDial) {
  auto& c = loaded_.config;
  c.run.mode = RunMode::kAsync;
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
  loaded_.config.run.mode = RunMode::kAsync;
  loaded_.config.staleness.pacing = Pacing::kFree;
  EXPECT_EQ(run("a").ended, "finished");
}

TEST_F(Training, AsyncHandsAThreadsErrorToTheCaller) {
  loaded_.config.run.mode = RunMode::kAsync;
  loaded_.config.env.reward_scale = 1e36;
  loaded_.config.learner.value_coef = 1e6;  // the gradient is beyond a float
  loaded_.config.learner.max_bad_updates = 2;
  EXPECT_THROW(run("a"), RunError);
}

// Observation or reward, lockstep or async: the segment is dropped, counted and named; nothing of it is learned from.
TEST_F(Training, NumbersThatAreNotFiniteAreRejectedCountedAndNamedAsyncToo) {
  loaded_.config.env.id = "Faulty-v0";
  for (const bool in_reward : {false, true}) {
    for (const RunMode run_mode : {RunMode::kLockstep, RunMode::kAsync}) {
      const std::string mode = word_of(run_mode);
      trouble.in_reward = in_reward;
      trouble.period = 97;
      warnings_.clear();
      loaded_.config.run.mode = run_mode;
      const std::string name = mode + (in_reward ? "-reward" : "-observation");
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
  for (const RunMode run_mode : {RunMode::kLockstep, RunMode::kAsync}) {
    const std::string mode = word_of(run_mode);
    trouble.in_reward = false;
    trouble.period = 3;
    loaded_.config.run.mode = run_mode;
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

// What was learned until then is not lost, and the environments begin anew: the one that failed may not do so again.
TEST_F(Training, AFailedRunIsSavedAndCanBeResumedAsyncToo) {
  loaded_.config.env.id = "Faulty-v0";
  loaded_.config.checkpoint.every_updates = 0;
  for (const RunMode run_mode : {RunMode::kLockstep, RunMode::kAsync}) {
    const std::string mode = word_of(run_mode);
    trouble.in_reward = false;
    trouble.period = 0;
    loaded_.config.run.mode = run_mode;
    loaded_.config.learner.updates = 60;
    run(mode);
    ASSERT_EQ(list_checkpoints(dir_ / mode + "/checkpoints"), (std::vector<std::int64_t>{60}));
    trouble.period = 3;
    EXPECT_THROW(go_on(mode, 200), RunError);
    const auto saved = list_checkpoints(dir_ / mode + "/checkpoints");
    ASSERT_FALSE(saved.empty());
    const Checkpoint checkpoint = read_checkpoint(fmt::format("{}/checkpoints/{:06}", dir_ / mode, saved.back()));
    EXPECT_TRUE(checkpoint.files.contains("episodes.bin"));
    trouble.period = 0;
    const RunSummary s = go_on(mode);
    EXPECT_EQ(s.ended, "finished");
    EXPECT_EQ(s.updates, 200) << "the longer run is what config.toml now says";
    const auto all = episodes(mode);
    EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size()) << "an episode twice";
    EXPECT_EQ(static_cast<std::int64_t>(all.size()), s.episodes);
  }
}

TEST_F(Training, ARunCanBeLengthenedTwiceAndKeepsItsDial) {
  loaded_.config.staleness.window = 52;  // 0.87 of 60: of 120 it would be no stale regime
  loaded_.config.eval.every_updates = 25;
  run("a");
  EXPECT_EQ(go_on("a", 80).updates, 80);
  EXPECT_EQ(go_on("a", 120).updates, 120);
  EXPECT_EQ(go_on("a").updates, 120);
  const ResumePoint point = find_resume_point(dir_ / "a");
  EXPECT_EQ(point.plan.window, 52);
  EXPECT_EQ(point.plan.dial_updates, 60);
  loaded_.config.staleness.regime = Regime::kCustom;
  loaded_.config.learner.updates = 120;
  run("b");
  EXPECT_EQ(file("a", "policy.safetensors"), file("b", "policy.safetensors"));
  EXPECT_EQ(file("a", "episodes.jsonl"), file("b", "episodes.jsonl"));
}

// The update at which a hook says so is the last: the run is evaluated, and can go on to the bytes of one that was whole.
TEST_F(Training, AHookMayEndARunInBothModes) {
  loaded_.config.eval.every_updates = 25;
  for (const RunMode run_mode : {RunMode::kLockstep, RunMode::kAsync}) {
    const std::string mode = word_of(run_mode);
    loaded_.config.run.mode = run_mode;
    run(mode + " whole");
    std::atomic<bool> finish{false};
    hooks_.finish = &finish;
    hooks_.progress = [&](const Progress& p) { finish = finish || p.update == 30; };
    const RunSummary stopped = run(mode);
    EXPECT_EQ(stopped.ended, "stopped");
    EXPECT_EQ(stopped.updates, 30);
    EXPECT_GT(stopped.eval_return.episodes, 0);
    EXPECT_TRUE(ended_well(stopped.ended));
    hooks_.finish = nullptr;
    hooks_.progress = nullptr;
    const RunSummary longer = go_on(mode);
    EXPECT_EQ(longer.ended, "finished");
    EXPECT_EQ(longer.updates, 60);
    if (run_mode == RunMode::kAsync) continue;
    for (const char* name : {"policy.safetensors", "best.safetensors", "evaluations.jsonl", "episodes.jsonl"}) {
      EXPECT_EQ(file(mode, name), file(mode + " whole", name)) << name;
    }
  }
}

TEST_F(Training, HooksHearOfEveryEpisodeAndEvaluation) {
  loaded_.config.eval.every_updates = 10;
  std::int64_t episodes = 0, best = -1;
  double best_mean = -HUGE_VAL;
  std::vector<std::int64_t> evaluated;
  hooks_.episodes = [&](std::span<const Episode> some) { episodes += std::ssize(some); };
  hooks_.evaluation = [&](const EvaluationNews& e) {
    evaluated.push_back(e.weights.version);
    EXPECT_EQ(e.best, e.result.returns.mean > best_mean);
    if (e.best) best = e.weights.version, best_mean = e.result.returns.mean;
  };
  const RunSummary s = run("a");
  EXPECT_EQ(episodes, s.episodes);
  EXPECT_EQ(evaluated, (std::vector<std::int64_t>{10, 20, 30, 40, 50, 60}));
  ASSERT_TRUE(s.best);
  EXPECT_EQ(s.best->update, best);
  EXPECT_EQ(s.best->returns.mean, best_mean);
  EXPECT_EQ(load_policy(dir_ / "a", "best").weights.version, best);
}

TEST_F(Training, ARunMayBeginWithTheWeightsOfAnother) {
  run("first");
  loaded_.config.run.init_from = dir_ / "first";
  loaded_.config.learner.policy_lr = loaded_.config.learner.value_lr = 0;
  loaded_.config.run.name = "second";
  const Plan plan = make_plan(loaded_);
  const std::shared_ptr<const Weights> first = first_weights(plan, {});
  ASSERT_TRUE(first);
  RunFolder folder(plan, "test", [] { return 0.0; });
  Trainer trainer(plan, folder, hooks_, first);
  EXPECT_EQ(trainer.current_weights()->version, 0);
  EXPECT_EQ(trainer.current_weights()->scale.mean, first->scale.mean);
  trainer.run();
  const Weights before = load_policy(dir_ / "first").weights, after = load_policy(dir_ / "second").weights;
  EXPECT_EQ(after.policy, before.policy);
  EXPECT_EQ(after.critic, before.critic);
  // It has seen a hundred times fewer observations than those of the first count for.
  for (std::size_t d = 0; d < before.scale.mean.size(); ++d) {
    EXPECT_NEAR(after.scale.mean[d], before.scale.mean[d], 0.02);
    EXPECT_NEAR(after.scale.inverse_std[d] / before.scale.inverse_std[d], 1, 0.02);
  }
}

TEST_F(Training, WeightsOfAnotherShapeAreRefused) {
  run("first");
  const auto refusal = [&](auto&& change) {
    LoadedConfig changed = loaded_;
    changed.config.run.init_from = dir_ / "first";
    change(changed.config);
    return message_of([&] { first_weights(make_plan(changed), {{"run.init_from", "--set"}}); });
  };
  EXPECT_NE(refusal([](Config& c) { c.policy.hidden = {16}; }).find("its tensor critic.0.bias is [8], here it is [16]"),
            std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.env.id = "Pendulum-v1"; }).find("is [8, 4], here it is [8, 3]"),
            std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.policy.activation = Activation::kRelu; }).find("policy.activation is tanh"),
            std::string::npos);
  EXPECT_TRUE(refusal([](Config& c) { c.policy.hidden = {8, 8}; }).starts_with("--set: run.init_from = "));
  EXPECT_EQ(refusal([](Config&) {}), "nothing was thrown");
  loaded_.config.env.normalise_observations = false;
  run("not scaled");
  EXPECT_NE(refusal([&](Config& c) {
              c.run.init_from = dir_ / "not scaled";
              c.env.normalise_observations = true;
            }).find("wanted env.normalise_observations = false"),
            std::string::npos);
}

// Not a synthetic one: every file of a checkpoint that a run made.
TEST_F(Training, EveryByteOfARealCheckpointCounts) {
  loaded_.config.env.count = 1;
  loaded_.config.policy.hidden = {4};
  loaded_.config.learner.updates = 10;
  loaded_.config.learner.batch_size = 8;
  loaded_.config.replay.segment_length = 4;
  loaded_.config.staleness.warmup = 16;
  loaded_.config.staleness.env_steps_per_update = 4;
  run("a");
  go_on("a", 20);
  const std::string folder = dir_ / "a/checkpoints", newest = folder + "/000020";
  const auto expect_passed_over = [&](const std::string& how) {
    std::vector<std::string> said;
    const auto found = newest_checkpoint(folder, said);
    ASSERT_TRUE(found && found->update == 10) << how;
    ASSERT_EQ(said.size(), 1u) << how;
  };
  const auto write = [](const std::string& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  };
  RandomStream random(1);
  for (const auto& entry : fs::directory_iterator(newest)) {
    const std::string path = entry.path().string(), whole = read_file(path);
    std::string bytes = whole;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>(whole[i] ^ (1 << random.below(8)));
      write(path, bytes);
      expect_passed_over(fmt::format("{} byte {}", path, i));
      bytes[i] = whole[i];
    }
    for (int i = 0; i < 200; ++i) {
      const std::size_t kept = random.below(whole.size());
      write(path, std::string_view(whole).substr(0, kept));
      expect_passed_over(fmt::format("{} cut to {}", path, kept));
    }
    write(path, whole);
  }
  std::vector<std::string> said;
  EXPECT_EQ(newest_checkpoint(folder, said)->update, 20);
}

TEST_F(Training, ActorGoesOnIdenticallyAfterSaveAndLoad) {
  loaded_.config.env.id = "Pendulum-v1";
  loaded_.config.policy.noise_correlation = 0.5;
  const Plan plan = make_plan(loaded_);
  const Weights weights = initial_weights(plan.model, RandomStream(1));

  Actor one(actor_spec(plan, 0)), two(actor_spec(plan, 1));
  for (int i = 0; i < 10; ++i) one.step(weights, i);
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

TEST_F(Training, ActionsThatAreNotGaussianHaveNoLastingNoise) {
  const auto acted = [&](double correlation) {
    loaded_.config.policy.noise_correlation = correlation;
    const Plan plan = make_plan(loaded_);
    const Weights weights = initial_weights(plan.model, RandomStream(1));
    Actor actor(actor_spec(plan, 0));
    for (int i = 0; i < 40; ++i) actor.step(weights, i);
    ByteWriter saved;
    actor.save(saved);
    return std::vector(saved.bytes().begin(), saved.bytes().end());
  };
  ASSERT_EQ(loaded_.config.env.id, "CartPole-v1");
  EXPECT_EQ(acted(0.5), acted(0));
}

TEST_F(Training, AnEmptyReplayIsExplainedByTheFaultsThatThereWere) {
  EXPECT_EQ(in_words({3, {{"start_not_finite", 1}, {"worker_died", 2}}, "it was ended by signal 11"}),
            "every segment was rejected (1 start_not_finite, 2 worker_died); the last: it was ended by signal 11");
  EXPECT_EQ(in_words({}), "no segment is finished");
}

}  // namespace
}  // namespace gipo
