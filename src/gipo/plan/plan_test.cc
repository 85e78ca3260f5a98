#include "gipo/plan/plan.h"

#include <gtest/gtest.h>

#include <tuple>

#include "gipo/core/error.h"
#include "gipo/policy/mlp_policy.h"

namespace gipo {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

using Settings = std::vector<std::string>;

Plan plan_of(const Settings& settings) {
  LoadedConfig loaded;
  for (const std::string& s : settings) apply_override(loaded, s);
  return make_plan(loaded);
}

// The plan of these settings is refused, with all of these parts in the message.
AssertionResult refused(const Settings& settings, const std::vector<std::string>& parts) {
  try {
    plan_of(settings);
  } catch (const Error& e) {
    for (const std::string& part : parts) {
      if (std::string(e.what()).find(part) == std::string::npos) {
        return AssertionFailure() << "no '" << part << "' in: " << e.what();
      }
    }
    return AssertionSuccess();
  }
  return AssertionFailure() << "was accepted";
}

std::string dial_of(const Plan& plan) { return dial(plan) + " " + std::to_string(plan.dial_updates); }

TEST(Plan, TwoOfThreeGiveTheThird) {
  const Settings base = {"staleness.regime=custom", "learner.updates=1000"};
  const std::string capacity = "replay.capacity=5000", pace = "staleness.env_steps_per_update=10",
                    window = "staleness.window=500";
  for (const Settings& two : {Settings{capacity, pace}, {capacity, window}, {pace, window}, {capacity, pace, window}}) {
    Settings all = base;
    all.insert(all.end(), two.begin(), two.end());
    const Plan plan = plan_of(all);
    EXPECT_EQ(plan.capacity, 5000);
    EXPECT_DOUBLE_EQ(plan.env_steps_per_update, 10);
    EXPECT_DOUBLE_EQ(plan.window, 500);
  }
}

TEST(Plan, ThreeThatDoNotFitAreRefused) {
  EXPECT_TRUE(refused(
      {"staleness.regime=custom", "replay.capacity=5000", "staleness.env_steps_per_update=10", "staleness.window=510"},
      {"--set: ", "replay.capacity = 5000", "staleness.window = 510", "staleness.env_steps_per_update = 10", "5100",
       "leave one out"}));
}

TEST(Plan, NormalisedRewardsHaveNoOtherScale) {
  EXPECT_TRUE(refused({"env.normalise_rewards=true", "env.reward_scale=0.1"},
                      {"--set: ", "env.reward_scale = 0.1", "env.normalise_rewards = true", "leave it out"}));
  EXPECT_TRUE(plan_of({"env.normalise_rewards=true"}).config.env.normalise_rewards);
}

TEST(Plan, GroupsAreMadeOfReturnsAlone) {
  const std::string mode = "advantage.mode=group", named = "advantage.mode = \"group\"";
  const Plan plan =
      plan_of({mode, "advantage.group_size=5", "advantage.filter_groups=true", "replay.sampling=transitions"});
  EXPECT_TRUE(plan.transition().stored);
  EXPECT_EQ(plan.learner_setup().advantage.mode, AdvantageMode::kStored);
  EXPECT_FALSE(plan.learner_setup().advantage.normalise) << "the group has done that";
  for (const auto& [setting, text] : std::vector<std::pair<std::string, std::string>>{
           {"advantage.lambda=0.9", "advantage.lambda = 0.9"},
           {"advantage.rho_bar=2", "advantage.rho_bar = 2"},
           {"advantage.c_bar=2", "advantage.c_bar = 2"},
           {"env.normalise_rewards=true", "env.normalise_rewards = true"},
           {"staleness.regime=on_policy", "staleness.regime = \"on_policy\""}}) {
    EXPECT_TRUE(refused({mode, setting}, {"--set: ", text, named}));
  }
  EXPECT_TRUE(refused({"advantage.group_size=4"}, {"advantage.group_size = 4", "advantage.mode = \"vtrace\""}));
  EXPECT_TRUE(refused({"advantage.filter_groups=true"}, {"advantage.filter_groups = true", "only advantage.mode"}));
  EXPECT_TRUE(refused({mode, "advantage.group_size=1"}, {"advantage.group_size"}));
}

TEST(Plan, ACentreIsAnAverageOverSomeUpdates) {
  const std::string centre = "surrogate.centre=proximal";
  plan_of({centre, "learner.proximal_updates=1.5"});
  plan_of({"learner.proximal_updates=1"});
  EXPECT_TRUE(refused({centre, "learner.proximal_updates=1"},
                      {"--set: learner.proximal_updates = 1 is not accepted", "wanted above 1"}));
  EXPECT_TRUE(refused({centre, "surrogate.importance_max=0.5"}, {"--set: surrogate.importance_max = 0.5", "1 to"}));
  EXPECT_TRUE(refused({"surrogate.centre=middle"}, {"surrogate.centre", "middle", "behaviour", "proximal"}));
  EXPECT_TRUE(refused({"learner.publish=average", "policy.shared=1"}, {"learner.publish", "policy.shared = 1"}));
}

TEST(Plan, CustomWantsTwo) {
  EXPECT_TRUE(refused({"staleness.regime=custom"}, {"--set: ", "staleness.regime = \"custom\" wants two of",
                                                    "replay.capacity", "staleness.window"}));
}

TEST(Plan, StalePresetKeepsDataFor87PercentOfTheUpdates) {
  for (const std::int64_t updates : {1000, 6000, 123457}) {
    const Plan plan = plan_of({"learner.updates=" + std::to_string(updates)});
    EXPECT_NEAR(plan.window / static_cast<double>(updates), 0.87, 1e-12);
    EXPECT_EQ(plan.env_steps_per_update, 8);
    EXPECT_NEAR(static_cast<double>(plan.capacity), plan.window * 8, 0.5);
    EXPECT_EQ(plan.actors, 2u);
    EXPECT_EQ(plan.t_old, updates / 10);
    EXPECT_EQ(plan.sampling, Sampling::kSegments);
    EXPECT_FALSE(plan.on_policy());
  }
}

TEST(Plan, FreshPresetKeepsDataForUnderATenthOfTheUpdates) {
  const Plan plan = plan_of({"staleness.regime=fresh", "learner.updates=4000"});
  EXPECT_DOUBLE_EQ(plan.window / 4000, 0.0125);
  EXPECT_EQ(plan.env_steps_per_update, 128);
  EXPECT_EQ(plan.actors, 16u);
  EXPECT_EQ(plan.capacity, 50 * 128);
}

TEST(Plan, OneNumberTurnsTheDialWithinAPreset) {
  EXPECT_EQ(plan_of({"learner.updates=1000", "staleness.env_steps_per_update=2"}).capacity, 1740);
  const Plan by_capacity = plan_of({"learner.updates=1000", "replay.capacity=1740"});
  EXPECT_DOUBLE_EQ(by_capacity.env_steps_per_update, 2);
  EXPECT_DOUBLE_EQ(by_capacity.window, 870);
}

TEST(Plan, NumbersThatContradictTheRegimeAreRefused) {
  EXPECT_TRUE(refused({"learner.updates=1000", "staleness.window=100"},
                      {"--set: ", "staleness.regime = \"stale\"", "0.87", "numbers give 0.1", "\"custom\""}));
  EXPECT_TRUE(refused({"learner.updates=1000", "replay.capacity=8000", "staleness.env_steps_per_update=8"},
                      {"--set: ", "numbers give 1"}));
  EXPECT_TRUE(refused({"staleness.regime=fresh", "learner.updates=1000", "staleness.window=200"},
                      {"--set: ", "staleness.regime = \"fresh\"", "under 0.1", "numbers give 0.2"}));
  EXPECT_NO_THROW(plan_of({"staleness.regime=fresh", "learner.updates=1000", "staleness.window=99"}));
  EXPECT_NO_THROW(plan_of({"learner.updates=1000", "staleness.window=870"}));
}

TEST(Plan, CapacityBeyondReachIsRefused) {
  EXPECT_TRUE(refused({"staleness.regime=custom", "staleness.window=1e12"}, {"--set: ", "capacity of 8", "1 to 1e10"}));
}

Settings on_policy(const Settings& more = {}) {
  Settings s = {"staleness.regime=on_policy", "advantage.mode=stored", "replay.capacity=2048", "learner.batch_size=64",
                "learner.epochs=10",          "env.count=8",           "staleness.actors=1",   "learner.updates=960"};
  s.insert(s.end(), more.begin(), more.end());
  return s;
}

TEST(Plan, OnPolicyIsCollectEpochsDiscard) {
  const Plan plan = plan_of(on_policy());
  EXPECT_TRUE(plan.on_policy());
  EXPECT_EQ(plan.updates_per_rollout, 320);
  EXPECT_EQ(plan.capacity, 2048);
  EXPECT_EQ(plan.segment_length, 256u);
  EXPECT_EQ(plan.sampling, Sampling::kEpochs);
  EXPECT_DOUBLE_EQ(plan.env_steps_per_update, 6.4);
  EXPECT_DOUBLE_EQ(plan.window, 320);
  EXPECT_EQ(plan.env_steps_due(0), 2048);
  EXPECT_EQ(plan.env_steps_due(319), 2048);
  EXPECT_EQ(plan.env_steps_due(320), 4096);
  EXPECT_EQ(plan.env_steps_due(959), 3 * 2048);
  EXPECT_EQ(plan.total_env_steps(), 3 * 2048);
}

TEST(Plan, OnPolicyRefusesWhatDoesNotGoWithIt) {
  EXPECT_TRUE(refused(on_policy({"run.mode=async"}), {"--set: run.mode = \"async\"", "wanted lockstep"}));
  EXPECT_TRUE(
      refused(on_policy({"replay.sampling=segments"}), {"--set: replay.sampling = \"segments\"", "wanted epochs"}));
  EXPECT_TRUE(refused(on_policy({"advantage.mode=gae"}), {"--set: advantage.mode = \"gae\"", "wanted stored"}));
  for (const std::string key : {"staleness.env_steps_per_update", "staleness.window", "staleness.warmup"}) {
    EXPECT_TRUE(refused(on_policy({key + "=8"}), {"--set: " + key, "leave it out"}));
  }
  EXPECT_TRUE(refused(on_policy({"replay.capacity=2052"}),
                      {"--set: replay.capacity = 2052", "multiple of 8 environments", "learner.batch_size = 64"}));
  EXPECT_TRUE(
      refused(on_policy({"learner.batch_size=100"}), {"--set: replay.capacity = 2048", "learner.batch_size = 100"}));
}

TEST(Plan, SharedLayersAreLayersOfThePolicy) {
  EXPECT_TRUE(refused({"policy.shared=3"}, {"--set: policy.shared = 3", "policy.hidden = [64, 64] has 2 layers"}));
  LoadedConfig loaded;
  apply_override(loaded, "policy.hidden=[32, 16]");
  apply_override(loaded, "policy.shared=2");
  const MlpShape critic = mlp_shapes(make_plan(loaded).model).critic;
  EXPECT_EQ(critic.input, 16u);
  EXPECT_TRUE(critic.hidden.empty());  // the policy's that are not shared: none
}

TEST(Plan, ARefusedDefaultNamesThePlaceThatMadeItWrong) {
  const auto message = [](const std::string& text) {
    try {
      make_plan(parse_config(text, "run.toml"));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message("[staleness]\nregime = \"on_policy\"\n[advantage]\nmode = \"stored\"")
                .find("run.toml:2: replay.capacity"),
            0u);
  EXPECT_EQ(message("[staleness]\nregime = \"on_policy\"").find("run.toml:2: advantage.mode = \"vtrace\""), 0u);
  EXPECT_EQ(message("[replay]\n\nsampling = \"transitions\"").find("run.toml:3: advantage.mode = \"vtrace\""), 0u);
  EXPECT_EQ(message("[staleness]\nwindow = 10").find("run.toml:2: staleness.regime = \"stale\""), 0u);
  EXPECT_EQ(message("[learner]\nupdates = 5").find("run.toml:2: replay.segment_length = 64"), 0u);
}

TEST(Plan, EpochsGoWithOnPolicyAlone) {
  EXPECT_TRUE(refused({"replay.sampling=epochs", "advantage.mode=stored"},
                      {"--set: replay.sampling = \"epochs\"", "on_policy"}));
  EXPECT_TRUE(refused({"replay.sampling=transitions", "advantage.mode=vtrace"},
                      {"--set: advantage.mode = \"vtrace\"", "transitions", "wanted stored"}));
  EXPECT_EQ(plan_of({"replay.sampling=transitions", "advantage.mode=stored"}).sampling, Sampling::kTransitions);
}

TEST(Plan, UnknownNamesSuggestTheNearest) {
  EXPECT_TRUE(
      refused({"env.id=CartPole-v2"}, {"--set: env.id", "CartPole-v2", "did you mean CartPole-v1?", "Pendulum-v1"}));
  EXPECT_TRUE(refused({"surrogate.name=gippo"}, {"--set: surrogate.name = gippo", "did you mean gipo?", "sapo"}));
}

TEST(Plan, DistributionMustFitTheTask) {
  EXPECT_TRUE(refused({"policy.distribution=gaussian"}, {"--set: policy.distribution = \"gaussian\"", "CartPole-v1"}));
  EXPECT_TRUE(refused({"env.id=Pendulum-v1", "policy.distribution=categorical"},
                      {"--set: policy.distribution = \"categorical\"", "Pendulum-v1"}));
  EXPECT_NO_THROW(plan_of({"env.id=Pendulum-v1", "policy.distribution=binned"}));
}

TEST(Plan, WarmupCoversFourBatchesAndASegmentOfEachEnvironment) {
  EXPECT_EQ(plan_of({"learner.batch_size=300"}).warmup, 1200);
  EXPECT_EQ(plan_of({"learner.batch_size=16", "staleness.actors=3", "env.count=5"}).warmup, 3 * 5 * 64);
  EXPECT_EQ(plan_of({"staleness.warmup=5000"}).warmup, 5000);
  EXPECT_TRUE(refused({"staleness.warmup=511"},
                      {"--set: staleness.warmup = 511", "at least 512", "64 steps", "8 environments"}));
  EXPECT_EQ(plan_of({"staleness.warmup=512"}).warmup, 512);
}

TEST(Plan, EnvStepsDueGrowByTheDial) {
  const Plan plan = plan_of({"learner.updates=1000", "staleness.env_steps_per_update=2.5", "staleness.warmup=600"});
  EXPECT_EQ(plan.env_steps_due(0), 600);
  EXPECT_EQ(plan.env_steps_due(1), 602);
  EXPECT_EQ(plan.env_steps_due(2), 605);
  EXPECT_EQ(plan.env_steps_due(999), 600 + 2497);
  // In whole rounds of eight environments.
  EXPECT_EQ(plan.total_env_steps(), 3104);
}

// A run of so many env steps has the fewest updates that need them.
TEST(Plan, LengthInEnvStepsBecomesUpdates) {
  for (const Settings& dial :
       {Settings{},
        {"staleness.env_steps_per_update=2.5", "staleness.warmup=600"},
        {"staleness.env_steps_per_update=0.01", "staleness.regime=custom", "replay.capacity=5000"},
        {"staleness.regime=fresh"},
        {"staleness.regime=custom", "replay.capacity=5000", "staleness.window=700"},
        {"staleness.regime=custom", "replay.capacity=5000"}}) {
    for (const std::int64_t env_steps : {1, 1024, 1025, 3096, 3097, 3104, 3105, 100'000}) {
      Settings all = dial;
      all.push_back("replay.segment_length=1");  // which a short run can hold
      all.push_back("learner.env_steps=" + std::to_string(env_steps));
      const Plan plan = plan_of(all);
      const std::int64_t updates = plan.config.learner.updates;
      EXPECT_GE(plan.total_env_steps(), env_steps);
      if (updates > 1) {
        EXPECT_LT(plan.total_env_steps(updates - 1), env_steps);
      }
      EXPECT_EQ(plan.config.learner.env_steps, 0);
      // The dial is that of a run which was given as many updates.
      all.back() = "learner.updates=" + std::to_string(updates);
      EXPECT_EQ(dial_of(plan), dial_of(plan_of(all)));
    }
  }
}

TEST(Plan, LengthInEnvStepsIsOneOfWholeRollouts) {
  const Settings rollouts = {"staleness.regime=on_policy", "advantage.mode=stored", "replay.capacity=2048",
                             "learner.batch_size=64"};
  for (const auto& [env_steps, epochs, updates] :
       {std::tuple{1, 10, 320}, {2048, 10, 320}, {2049, 10, 640}, {102'400, 10, 16'000}, {102'400, 4, 6'400}}) {
    Settings all = rollouts;
    all.push_back("learner.env_steps=" + std::to_string(env_steps));
    all.push_back("learner.epochs=" + std::to_string(epochs));
    const Plan plan = plan_of(all);
    EXPECT_EQ(plan.config.learner.updates, updates);
    EXPECT_EQ(plan.total_env_steps(), (env_steps + 2047) / 2048 * 2048);
  }
}

TEST(Plan, LengthIsGivenOnce) {
  EXPECT_TRUE(refused({"learner.updates=10", "learner.env_steps=5000"},
                      {"--set: learner.env_steps = 5000 is not accepted beside learner.updates = 10: each says",
                       "(learner.updates is set by --set)"}));
  EXPECT_TRUE(refused({"learner.env_steps=5000", "learner.updates=10"}, {"learner.env_steps = 5000", "updates = 10"}));
  EXPECT_EQ(plan_of({"learner.updates=1000", "learner.env_steps=0"}).config.learner.updates, 1000);
  // Of a file and the command line, the latter.
  LoadedConfig loaded = parse_config("[learner]\nupdates = 700\n", "a.toml");
  apply_override(loaded, "learner.env_steps=8192");
  EXPECT_EQ(make_plan(loaded).total_env_steps(), 8192);
  loaded = parse_config("[learner]\nenv_steps = 8192\n", "a.toml");
  apply_override(loaded, "learner.updates=700");
  EXPECT_EQ(make_plan(loaded).config.learner.updates, 700);
  EXPECT_THROW(parse_config("[learner]\nenv_steps = 8192\nupdates = 700\n", "a.toml"), Error);
  EXPECT_NO_THROW(parse_config("[learner]\nenv_steps = 0\nupdates = 700\n", "a.toml"));
}

TEST(Plan, LengthInEnvStepsWantsAPaceOfItsOwn) {
  EXPECT_TRUE(refused({"learner.env_steps=5000", "replay.capacity=1740"},
                      {"--set: learner.env_steps = 5000", "replay.capacity = 1740", "staleness.env_steps_per_update"}));
  EXPECT_TRUE(refused({"learner.env_steps=5000", "run.mode=async", "staleness.pacing=free"},
                      {"learner.env_steps = 5000", "staleness.pacing = \"free\"", "learner.updates"}));
  EXPECT_TRUE(refused({"learner.env_steps=1000000000000000", "staleness.env_steps_per_update=0.001"},
                      {"learner.env_steps = 1000000000000000", "updates"}));
  EXPECT_TRUE(refused({"learner.env_steps=-1"}, {"learner.env_steps = -1", "0 to 1000000000000000"}));
}

TEST(Plan, SegmentThatTheReplayCannotHoldIsRefused) {
  EXPECT_TRUE(
      refused({"staleness.regime=custom", "replay.capacity=100", "staleness.window=10", "replay.segment_length=101"},
              {"--set: replay.segment_length = 101", "100 transitions"}));
  EXPECT_EQ(
      plan_of({"staleness.regime=custom", "replay.capacity=100", "staleness.window=10", "replay.segment_length=100"})
          .segment_length,
      100u);
}

TEST(Plan, RunNameSaysTaskSurrogateAndSeed) {
  const Plan plan = plan_of({"env.id=Pendulum-v1", "surrogate.name=ppo", "run.seed=7", "run.dir=/tmp/x"});
  EXPECT_EQ(plan.name, "Pendulum-v1-ppo-7");
  EXPECT_EQ(plan.run_dir, "/tmp/x/Pendulum-v1-ppo-7");
  EXPECT_EQ(plan_of({"run.name=mine"}).run_dir, "runs/mine");
  for (const std::string name : {"a/b", "..", ".", "/etc"}) {
    EXPECT_TRUE(refused({"run.name=" + name}, {"--set: run.name = \"" + name + "\"", "without a slash"}));
  }
}

TEST(Plan, TimeLimitAndOldGapFollowTheConfig) {
  const Plan plan = plan_of({"env.time_limit=77", "staleness.t_old=5"});
  EXPECT_EQ(plan.env.time_limit, 77);
  EXPECT_EQ(plan.t_old, 5);
  EXPECT_EQ(plan_of({}).env.time_limit, 500);
}

TEST(Plan, ReplayMemoryGrowsWithTheCapacity) {
  const Settings base = {"staleness.regime=custom", "staleness.window=1000"};
  const std::size_t one = plan_of({base[0], base[1], "replay.capacity=10000"}).replay_bytes();
  const std::size_t ten = plan_of({base[0], base[1], "replay.capacity=100000"}).replay_bytes();
  EXPECT_EQ(ten, 10 * one);
  EXPECT_GT(one, 10000u * (4 + 1 + 1 + 1) * sizeof(float));
}

}  // namespace
}  // namespace gipo
