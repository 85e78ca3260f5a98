#include "gipo/population/population.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gipo/core/message_of.h"
#include "gipo/env/env.h"
#include "gipo/population/prepare.h"
#include "gipo/run/export.h"
#include "gipo/train/small_runs.h"

namespace gipo::population {
namespace {

namespace fs = std::filesystem;

// Stepped by the host, as MuJoCo's tasks are; breaks down now and then.
class Shaky final : public Env {
 public:
  Shaky() : Env(shaky_spec()) { own_spec().engine = "MuJoCo in a test"; }
  static EnvSpec shaky_spec() {
    return {"Shaky-v0", "for tests", 2, ActionSpace::box({-1, -2, -HUGE_VAL}, {1, 3, HUGE_VAL}), 25};
  }
  void observe(std::span<double> observation) const override { observation[0] = state_, observation[1] = 1 - state_; }
  void save_physics(ByteWriter&) const override {}
  void load_physics(ByteReader&) override {}

 private:
  void start_episode(RandomStream& random) override { state_ = random.uniform(); }
  Outcome advance(std::span<const double> action) override {
    state_ = 0.9 * state_ + 0.1 * action[0] + 0.02 * action[1] + 0.01 * action[2];
    if (++steps_ % 37 == 0) return {0, true, "broke"};
    return {1 - state_ * state_, false};
  }
  double state_ = 0;
  int steps_ = 0;
};

// For the tests that ask for it: others go through all environments.
void register_shaky() {
  static const RegisterEnv shaky{Shaky::shaky_spec(), [] { return std::make_unique<Shaky>(); }};
}

class Populations : public SmallRuns, public testing::Test {
 protected:
  Populations() {
    loaded_.config.policy.hidden = {16, 12};
    loaded_.config.staleness.regime = Regime::kCustom;
    loaded_.config.replay.capacity = 700;
    loaded_.config.staleness.env_steps_per_update = 8;
    loaded_.config.log.every_updates = 5;
    loaded_.config.log.tensorboard = false;
    loaded_.config.eval.episodes = 2;
    // The trainer gives the replay all segments of one actor after the other; a card, those of one round.
    loaded_.config.staleness.actors = 1;
    loaded_.config.env.count = 8;
  }

  Plan plan_named(const std::string& name) {
    loaded_.config.run.name = name;
    return make_plan(loaded_);
  }

  // On the host twin.
  void train(std::span<const Plan> plans) { train(plans, *make_host_engine()); }
  void train(std::span<const Plan> plans, Engine& engine) {
    std::vector<const Plan*> all;
    for (const Plan& plan : plans) {
      check_plan(plan);
      all.push_back(&plan);
    }
    PopulationHooks hooks;
    hooks.seconds = hooks.wall_time = [] { return 0.0; };
    hooks.progress = [](std::size_t, double) {};
    hooks.ended = [&](std::size_t, const std::string& why) { failures_ += why; };
    hooks.command = [](std::size_t) { return "test"; };
    EXPECT_TRUE(train_population(engine, all, hooks));
  }

  std::vector<nlohmann::json> lines(const std::string& run, const std::string& file) {
    std::vector<nlohmann::json> all;
    std::istringstream in(read_file(dir_ / run + "/" + file));
    for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }

  // The same config by the trainer and by the host twin: they draw the same random numbers, so that they stay together
  // until rounding has grown. Every figure of the first `updates` updates.
  void expect_alike(const std::string& what, std::int64_t updates, double tolerance = 2e-3) {
    loaded_.config.learner.updates = updates;
    run("cpu " + what);
    train(std::vector{plan_named("card " + what)});
    EXPECT_EQ(failures_, "") << what;
    const auto cpu = lines("cpu " + what, "metrics.jsonl"), card = lines("card " + what, "metrics.jsonl");
    ASSERT_EQ(cpu.size(), card.size()) << what;
    ASSERT_FALSE(cpu.empty());
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      ASSERT_EQ(cpu[i].size(), card[i].size()) << what;
      for (const auto& [key, value] : cpu[i].items()) {
        ASSERT_TRUE(card[i].contains(key)) << what << " " << key;
        if (!value.is_number()) continue;
        const double expected = value.get<double>(), found = card[i][key].get<double>();
        ASSERT_NEAR(found, expected, tolerance * (0.1 + std::abs(expected))) << what << " " << key << ", line " << i;
      }
    }
    const auto played = lines("cpu " + what, "episodes.jsonl"), replayed = lines("card " + what, "episodes.jsonl");
    ASSERT_EQ(played.size(), replayed.size()) << what;
    for (std::size_t i = 0; i < played.size(); ++i) {
      for (const auto& [key, value] : played[i].items()) {
        if (key == "return") {
          ASSERT_NEAR(replayed[i][key].get<double>(), value.get<double>(), 1e-2) << what;
        } else {
          ASSERT_EQ(replayed[i][key], value) << what << " " << key;
        }
      }
    }
    const Weights one = load_policy(dir_ / "cpu " + what).weights, other = load_policy(dir_ / "card " + what).weights;
    using Floats = std::span<const float>;
    for (const auto& [a, b] : {std::pair<Floats, Floats>(one.policy, other.policy),
                               {one.critic, other.critic},
                               {one.scale.mean, other.scale.mean},
                               {one.scale.inverse_std, other.scale.inverse_std}}) {
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t k = 0; k < a.size(); ++k)
        ASSERT_NEAR(a[k], b[k], 1e-3 * (1 + std::abs(a[k]))) << what << " parameter " << k;
    }
    const double greedy = lines("cpu " + what, "evaluations.jsonl").back()["mean"];
    EXPECT_NEAR(lines("card " + what, "evaluations.jsonl").back()["mean"].get<double>(), greedy,
                0.05 * std::abs(greedy))
        << what;
  }

  std::string failures_;
};

TEST_F(Populations, TheFirstUpdateIsTheCpuLearners) {
  loaded_.config.learner.updates = 1;
  loaded_.config.log.every_updates = 1;
  run("cpu");
  train(std::vector{plan_named("card")});
  const Weights one = load_policy(dir_ / "cpu").weights, other = load_policy(dir_ / "card").weights;
  ASSERT_EQ(one.policy.size(), other.policy.size());
  for (std::size_t k = 0; k < one.policy.size(); ++k) ASSERT_NEAR(one.policy[k], other.policy[k], 1e-5) << k;
  for (std::size_t k = 0; k < one.critic.size(); ++k) ASSERT_NEAR(one.critic[k], other.critic[k], 1e-5) << k;
}

TEST_F(Populations, EveryTaskGoesAsTheTrainersDoes) {
  for (const char* id : {"CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0"}) {
    loaded_.config.env.id = id;
    expect_alike(id, 20);
  }
}

TEST_F(Populations, EverySurrogateGoesAsTheTrainersDoes) {
  for (const char* name :
       {"gipo", "ppo", "dual_clip", "sapo", "no_clip", "cispo", "truncated", "ce_gppo", "m2po", "topr"}) {
    loaded_.config.surrogate.name = name;
    expect_alike(name, 15);
  }
}

TEST_F(Populations, EveryOptionOfTheObjectiveGoesAsTheTrainersDoes) {
  Config& c = loaded_.config;
  const Config plain = c;
  const auto with = [&](const std::string& what, auto&& set) {
    c = plain;
    set();
    expect_alike(what, 15);
  };
  with("proximal centre", [&] {
    c.surrogate.centre = Centre::kProximal;
    c.surrogate.pull_back = PullBack::kBoth;
    c.learner.policy_every = 2;
    c.learner.schedule = Schedule::kLinear;
    c.learner.entropy_schedule = Schedule::kCosine;
    c.advantage.normalise = false;
  });
  with("proximal term", [&] {
    c.learner.proximal_coef = 0.3;
    c.learner.kl_coef = 0.1;
    c.learner.publish = Published::kAverage;
    c.env.id = "Pendulum-v1";
  });
  with("age", [&] {
    c.surrogate.sigma_growth = 0.5;
    c.surrogate.sigma_gap = 3;
    c.surrogate.kernel = TrustKernel::kCauchy;
  });
  with("gae", [&] {
    c.advantage.mode = AdvantageMode::kGae;
    c.learner.weight_decay = 0.01;
    c.learner.schedule = Schedule::kCosine;
    c.learner.warmup_updates = 5;
  });
  with("stored", [&] {
    c.advantage.mode = AdvantageMode::kStored;
    c.env.reward_scale = 0.1;
  });
  with("rewards", [&] {
    c.env.normalise_rewards = true;
    c.env.normalise_observations = false;
    c.env.id = "Pendulum-v1";
    c.env.time_limit = 30;
  });
  with("stored rewards", [&] {
    c.env.normalise_rewards = true;
    c.advantage.mode = AdvantageMode::kStored;
  });
  with("lasting noise", [&] {
    c.env.id = "Pendulum-v1";
    c.env.time_limit = 30;
    c.policy.noise_correlation = 0.6;
  });
  with("bins", [&] {
    c.env.id = "Pendulum-v1";
    c.policy.distribution = DistributionChoice::kBinned;
    c.policy.activation = Activation::kRelu;
    c.policy.critic_hidden = Widths{9};
    c.learner.batch_size = 37;
  });
}

TEST_F(Populations, HostedTasksGoAsTheTrainersDo) {
  Config& c = loaded_.config;
  c.env.normalise_rewards = true;
  for (const char* id : {"InvertedPendulum-v5", "Hopper-v5", "Ant-v5", "Humanoid-v5"}) {
    c.env.id = id;
    expect_alike(id, 10);
  }
  c.env.id = "Reacher-v5";
  const Config plain = c;
  const auto with = [&](const std::string& what, auto&& set) {
    c = plain;
    set();
    expect_alike("Reacher " + what, 10);
  };
  with("centre", [&] {
    c.surrogate.centre = Centre::kProximal;
    c.surrogate.pull_back = PullBack::kBoth;
    c.learner.schedule = Schedule::kLinear;
  });
  with("proximal term", [&] {
    c.learner.proximal_coef = 0.3;
    c.learner.kl_coef = 0.1;
    c.learner.entropy_coef = 0.01;
    c.learner.publish = Published::kAverage;
  });
  with("stored", [&] {
    c.advantage.mode = AdvantageMode::kStored;
    c.env.time_limit = 30;
    c.policy.noise_correlation = 0.3;
  });
  with("one dimension in bins", [&] {
    c.env.id = "InvertedPendulum-v5";
    c.policy.distribution = DistributionChoice::kBinned;
  });
}

TEST_F(Populations, RolloutsGoAsTheTrainersDo) {
  register_shaky();
  Config& c = loaded_.config;
  c.staleness = {};
  c.staleness.regime = Regime::kOnPolicy;
  c.staleness.actors = 1;
  c.env.count = 4;
  c.env.normalise_rewards = true;
  c.advantage.mode = AdvantageMode::kStored;
  c.replay.capacity = 256;
  c.learner.epochs = 3;
  c.learner.schedule = Schedule::kLinear;
  for (const char* id : {"Pendulum-v1", "Hopper-v5", "Shaky-v0"}) {  // 12 updates from each rollout
    c.env.id = id;
    expect_alike(std::string("rollouts ") + id, 40);
  }
}

// Neither the threads that step nor where arrays lie change a byte.
TEST_F(Populations, HostedRunsAreTheSameWhereverTheyStep) {
  loaded_.config.learner.updates = 30;
  loaded_.config.learner.proximal_coef = 0.3;
  const auto plans = [&](const std::string& name) {
    std::vector<Plan> all;
    for (const char* id : {"InvertedDoublePendulum-v5", "Hopper-v5", "CartPole-v1"}) {
      loaded_.config.env.id = id;
      all.push_back(plan_named(name + id));
    }
    return all;
  };
  train(plans("one"), *make_host_engine(1));
  train(plans("many"), *make_host_engine(3, 20'000));
  EXPECT_EQ(failures_, "");
  EXPECT_FALSE(spread(card_spec(plans("room")[1], 30), 1, 20'000).shared.policy);
  for (const char* id : {"InvertedDoublePendulum-v5", "Hopper-v5", "CartPole-v1"}) {
    for (const char* file : {"metrics.jsonl", "episodes.jsonl", "evaluations.jsonl", "policy.safetensors"}) {
      EXPECT_EQ(read_file(dir_ / ("one" + std::string(id)) + "/" + file),
                read_file(dir_ / ("many" + std::string(id)) + "/" + file))
          << id << file;
    }
  }
}

// The segment is dropped, and counted; where it is always so, the run ends.
TEST_F(Populations, ASimulationThatBreaksDownIsOneOfTheTrainers) {
  register_shaky();
  Config& c = loaded_.config;
  c.env.id = "Shaky-v0";
  expect_alike("shaky", 20);
  const auto cpu = nlohmann::json::parse(file("cpu shaky", "summary.json"))["counts"],
             card = nlohmann::json::parse(file("card shaky", "summary.json"))["counts"];
  EXPECT_GT(card["rejected_segments"].get<int>(), 2);
  EXPECT_EQ(card["rejected_segments"], cpu["rejected_segments"]);
  EXPECT_EQ(card["faults"], cpu["faults"]);
  EXPECT_TRUE(card["faults"].contains("broke"));
  c.env.reward_scale = 1e39;
  train(std::vector{plan_named("infinite")});
  EXPECT_NE(failures_.find("environment 7 (Shaky-v0) gave a reward that is not finite"), std::string::npos)
      << failures_;
}

// Single steps have streams of their own: the same distribution, other numbers.
TEST_F(Populations, SingleStepsAreSampled) {
  loaded_.config.replay.sampling = Sampling::kTransitions;
  loaded_.config.advantage.mode = AdvantageMode::kStored;
  loaded_.config.learner.updates = 120;
  run("cpu");
  train(std::vector{plan_named("card")});
  const double cpu = lines("cpu", "metrics.jsonl").back()["gap_mean"],
               card = lines("card", "metrics.jsonl").back()["gap_mean"];
  EXPECT_NEAR(card, cpu, 0.2 * cpu);
}

TEST_F(Populations, CartPoleIsLearned) {
  Config& c = loaded_.config;
  c.policy.hidden = {16};
  c.env.reward_scale = 0.1;
  c.replay.capacity = 4000;
  c.learner.policy_lr = c.learner.value_lr = 3e-3;
  c.learner.updates = 2000;
  c.log.every_updates = 100;
  train(std::vector{plan_named("a")});
  const auto summary = nlohmann::json::parse(read_file(dir_ / "a/summary.json"));
  EXPECT_GT(summary["final_return"]["mean"].get<double>(), 100) << "a policy that has not learned has 22";
}

TEST_F(Populations, RunsOfOnePopulationAreThoseOfEachAlone) {
  loaded_.config.learner.updates = 30;
  const Plan one = plan_named("one");
  loaded_.config.env.id = "Pendulum-v1";
  loaded_.config.surrogate.name = "ppo";
  loaded_.config.run.seed = 5;
  const Plan other = plan_named("other"), alone = plan_named("alone");
  train(std::vector{one, other});
  train(std::vector{alone});
  for (const char* file : {"metrics.jsonl", "episodes.jsonl", "policy.safetensors"}) {
    EXPECT_EQ(read_file(dir_ / "other/" + file), read_file(dir_ / "alone/" + file)) << file;
    EXPECT_NE(read_file(dir_ / "other/" + file), read_file(dir_ / "one/" + file)) << file;
  }
}

TEST_F(Populations, ARunThatDivergesFailsByItself) {
  loaded_.config.env.reward_scale = 1e36;
  loaded_.config.learner.value_coef = 1e6;
  loaded_.config.learner.max_bad_updates = 2;
  const Plan bad = plan_named("bad");
  loaded_.config.env.reward_scale = 1;
  loaded_.config.learner.value_coef = 0.5;
  const Plan good = plan_named("good");
  train(std::vector{bad, good});
  EXPECT_NE(failures_.find("training diverged: 2 updates in a row"), std::string::npos) << failures_;
  EXPECT_NE(read_file(dir_ / "bad/summary.json").find("failed: training diverged"), std::string::npos);
  EXPECT_NE(read_file(dir_ / "good/summary.json").find("\"finished\""), std::string::npos);
}

TEST_F(Populations, WhatACardCannotDoIsNamed) {
  const auto refusal = [&](auto&& change) {
    const LoadedConfig before = loaded_;
    change(loaded_.config);
    std::string said = message_of([&] { check_plan(plan_named("a")); });
    loaded_ = before;
    return said;
  };
  EXPECT_EQ(refusal([](Config&) {}), "nothing was thrown");
  EXPECT_NE(
      refusal([](Config& c) { c.env.id = "Recall-v0"; }).find("env.id = \"Recall-v0\" cannot be trained on a card"),
      std::string::npos);
  EXPECT_NE(refusal([](Config& c) {
              c.env.id = "Hopper-v5";
              c.surrogate.ratio = RatioOf::kDimension;
            }).find("surrogate.ratio = \"dimension\" cannot be trained on a card: wanted joint"),
            std::string::npos);
  EXPECT_NE(refusal([](Config& c) {
              c.env.id = "Hopper-v5";
              c.policy.distribution = DistributionChoice::kBinned;
            }).find("policy.distribution = \"binned\" of several action dimensions"),
            std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.policy.layer_norm = true; }).find("policy.layer_norm = true"), std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.advantage.mode = AdvantageMode::kGroup; }).find("advantage.mode = \"group\""),
            std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.policy.shared = 1; }).find("policy.shared = 1"), std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.run.mode = RunMode::kAsync; }).find("wanted lockstep"), std::string::npos);
  EXPECT_NE(refusal([](Config& c) { c.eval.every_updates = 10; }).find("eval.every_updates = 10"), std::string::npos);
}

}  // namespace
}  // namespace gipo::population
