#include "gipo/clone/demonstrations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "gipo/core/error.h"
#include "gipo/io/temporary_folder.h"

namespace gipo {
namespace {

// Seven steps of two episodes; what is observed at a step is its number.
class DemonstrationsTest : public testing::Test {
 protected:
  DemonstrationsTest() {
    env_.action = ActionSpace::box({-2, -2}, {2, 2});
    env_.fields = {{"seen", DType::kFloat32, {1}}};
    env_.observation_size = 1;
  }

  Demonstrations read() {
    const std::vector<TensorView> tensors = {view_tensor<std::int64_t>("episode_ends", {2}, ends_),
                                             view_tensor<float>("action", {7, action_.size() / 7}, action_),
                                             view_tensor<float>("reward", {7}, reward_),
                                             view_tensor<float>("obs/seen", {7, 1}, seen_)};
    std::ofstream(path_, std::ios::binary) << write_safetensors(tensors);
    return Demonstrations(path_, use());
  }
  DemonstrationUse use() const {
    const ModelSpec model = make_model_spec(options_, env_);
    return {model, {model.fields, env_.action.dims(), true, 0, model.distribution.choices}, clone_, 0.5, 2, 1};
  }
  std::vector<float> actions_of(std::size_t step) {
    const Demonstrations d = read();
    Batch batch(1, use().transition);
    d.fill(std::vector{step}, 3, batch);
    EXPECT_EQ(batch.observation()[0], static_cast<float>(step));
    EXPECT_EQ(batch.version()[0], 3);
    return {batch.action().begin(), batch.action().end()};
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "demonstrations.safetensors";
  EnvSpec env_;
  PolicyOptions options_;
  CloneOptions clone_;
  std::vector<std::int64_t> ends_ = {4, 7};
  std::vector<float> action_ = {-2, -1.5, -1, -0.5, 0, 1, 2};
  std::vector<float> reward_ = {0, 0, 0, 1, 0, 0, 3}, seen_ = {0, 1, 2, 3, 4, 5, 6};
};

TEST_F(DemonstrationsTest, ChunkIsWhatFollowedAndRepeatsTheLast) {
  EXPECT_EQ(read().chunk(), 2u);
  EXPECT_EQ(actions_of(0), (std::vector<float>{-1, -0.75F}));
  EXPECT_EQ(actions_of(3), (std::vector<float>{-0.25F, -0.25F}));
  EXPECT_EQ(actions_of(5), (std::vector<float>{0.5F, 1}));
}

TEST_F(DemonstrationsTest, ActionsAreInThePolicysUnits) {
  options_.distribution = DistributionChoice::kBinned;
  options_.bins = 5;
  EXPECT_EQ(actions_of(5), (std::vector<float>{3, 4}));
}

TEST_F(DemonstrationsTest, TargetsAreDiscountedOncePerChunk) {
  const Demonstrations d = read();
  Batch batch(7, use().transition);
  d.fill(std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6}, 0, batch);
  const std::vector<float> expected = {1, 1, 2, 2, 3, 6, 6};
  EXPECT_EQ(std::vector<float>(batch.target().begin(), batch.target().end()), expected);
  for (const float a : batch.advantage()) EXPECT_EQ(a, 1);
}

TEST_F(DemonstrationsTest, EpisodesAreHeldOutWhole) {
  clone_.holdout = 0.5;
  const Demonstrations d = read();
  EXPECT_EQ(d.episodes_held_out(), 1u);
  EXPECT_EQ(d.learned().size() + d.held_out().size(), 7u);
  EXPECT_TRUE(d.held_out().size() == 4 || d.held_out().size() == 3);
  Batch batch(64, use().transition);
  d.sample(5, batch);
  for (const float seen : batch.observation()) EXPECT_EQ(seen >= 4, d.learned()[0] >= 4);
  Batch again(64, use().transition);
  d.sample(5, again);
  EXPECT_TRUE(std::ranges::equal(batch.observation(), again.observation()));
  d.sample(6, again);
  EXPECT_FALSE(std::ranges::equal(batch.observation(), again.observation()));
  const RunningMoments moments = d.moments();
  EXPECT_EQ(moments.count(), static_cast<double>(d.learned().size()));
}

TEST_F(DemonstrationsTest, WhatIsNoDemonstrationIsRefused) {
  const auto refused = [&](const std::string& why) {
    try {
      read();
      ADD_FAILURE() << why;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  action_[4] = 2.5F;
  refused("episode 1, step 0 has 2.5 at place 0");
  action_[4] = std::nanf("");
  refused("no action of the task: wanted a number from -2 to 2");
  action_[4] = 0;
  reward_[0] = INFINITY;
  refused("the reward of episode 0, step 0 is not a finite number");
  reward_[0] = 0;
  seen_[0] = INFINITY;
  refused("not finite");
  seen_[0] = 0;
  ends_ = {4, 4};
  refused("episode_ends holds 4 after 4");
  ends_ = {4, 6};
  refused("action is F32 [7, 1]: wanted F32 [6, 2]");
  ends_ = {4, 7};
  env_.fields[0].name = "other";
  refused("it has no tensor obs/other; it has action, episode_ends, obs/seen, reward");
}

}  // namespace
}  // namespace gipo
