#include "gipo/plan/automatic.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gipo/core/error.h"
#include "gipo/plan/plan.h"
#include "gipo/plan/presets.h"

namespace gipo {
namespace {

ChosenConfig chosen_for(const std::vector<std::string>& assignments) {
  return choose_config(kAutomatic, [&](LoadedConfig& loaded) {
    for (const std::string& assignment : assignments) apply_override(loaded, assignment);
  });
}

bool says(const ChosenConfig& config, const std::string& text) {
  return std::ranges::any_of(config.chosen, [&](const std::string& line) { return line.find(text) != line.npos; });
}

TEST(Automatic, ATaskOfTheZooHasItsSettings) {
  const ChosenConfig found = chosen_for({"env.id=Hopper-v5", "run.seed=7"});
  EXPECT_EQ(found.loaded.config.surrogate.name, "ppo");
  EXPECT_EQ(found.loaded.config.run.seed, 7);
  EXPECT_TRUE(says(found, "zoo/Hopper-v5"));
}

TEST(Automatic, AnotherTaskIsTriedOut) {
  const ChosenConfig found = chosen_for({"env.id=MountainCar-v0"});
  const Config& config = found.loaded.config;
  EXPECT_EQ(config.env.reward_scale, 0.1);
  EXPECT_EQ(config.learner.env_steps, 200'000);
  EXPECT_EQ(config.replay.capacity, 100'000);
  EXPECT_EQ(config.surrogate.centre, Centre::kProximal);
  EXPECT_FALSE(says(found, "noise_correlation")) << "its actions are not gaussian";
  EXPECT_TRUE(says(found, "env.reward_scale = 0.1")) << found.chosen.size();
  EXPECT_TRUE(says(found, "episodes of up to 200 steps"));
  EXPECT_NO_THROW(make_plan(found.loaded));
  EXPECT_EQ(chosen_for({"env.id=MountainCar-v0"}).chosen, found.chosen) << "the same every time";
}

TEST(Automatic, NoiseDoesNotLastInATaskThatIsNotKnown) {
  const ChosenConfig found = chosen_for({"env.id=Hopper-v5", "env.options.forward_reward_weight=2"});
  EXPECT_EQ(found.loaded.config.policy.noise_correlation, 0.0);
  EXPECT_TRUE(says(found, "policy.noise_correlation = 0.0"));
}

TEST(Automatic, WhatIsGivenStays) {
  const ChosenConfig found = chosen_for({"env.id=MountainCar-v0", "env.reward_scale=7", "learner.updates=4000",
                                         "policy.hidden=[8]", "staleness.window=900"});
  EXPECT_EQ(found.loaded.config.env.reward_scale, 7);
  EXPECT_EQ(found.loaded.config.learner.updates, 4000);
  EXPECT_EQ(found.loaded.config.learner.env_steps, 0);
  EXPECT_EQ(found.loaded.config.policy.hidden, Widths{8});
  EXPECT_FALSE(says(found, "reward_scale"));
  EXPECT_FALSE(says(found, "capacity"));
  EXPECT_NO_THROW(make_plan(found.loaded));
}

TEST(Automatic, AShortRunKeepsAllOfItsData) {
  const ChosenConfig found = chosen_for({"env.id=MountainCar-v0", "learner.env_steps=20000"});
  EXPECT_EQ(found.loaded.config.staleness.regime, Regime::kStale);
  EXPECT_FALSE(found.loaded.config.replay.capacity);
}

TEST(Automatic, AConfigIsTakenAsItIs) {
  const ChosenConfig found = choose_config("classic/fresh", [](LoadedConfig&) {});
  EXPECT_TRUE(found.chosen.empty());
  EXPECT_EQ(found.loaded.config.staleness.regime, Regime::kFresh);
  EXPECT_THROW(chosen_for({"env.id=NoSuchTask-v0"}), Error);
}

}  // namespace
}  // namespace gipo
