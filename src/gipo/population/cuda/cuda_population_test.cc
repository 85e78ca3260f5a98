#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "gipo/io/files.h"
#include "gipo/io/temporary_folder.h"
#include "gipo/population/population.h"
#include "gipo/population/prepare.h"
#include "gipo/run/export.h"

namespace gipo::population {
namespace {

// Those that step on the card, and some that the host steps: the last see too much for shared memory.
constexpr const char* kIds[] = {
    "CartPole-v1",         "Acrobot-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0",
    "InvertedPendulum-v5", "Hopper-v5",  "Ant-v5",      "Humanoid-v5"};

class CudaPopulation : public testing::Test {
 protected:
  void SetUp() override {
    int cards = 0;
    if (cudaGetDeviceCount(&cards) != cudaSuccess || cards == 0) GTEST_SKIP() << "no card";
    Config& c = loaded_.config;
    c.run.dir = dir_.path();
    c.env.count = 8;
    c.staleness.actors = 1;
    c.policy.hidden = {16, 12};
    c.learner.batch_size = 64;
    c.replay.segment_length = 16;
    c.replay.capacity = 700;
    c.staleness.regime = Regime::kCustom;
    c.staleness.env_steps_per_update = 8;
    c.eval.episodes = 1;
    c.log.tensorboard = false;
    c.env.normalise_rewards = true;
    c.surrogate.centre = Centre::kProximal;
    c.learner.proximal_coef = 0.3;
  }

  // Every task once, in runs called NAME-TASK.
  void train(Engine& engine, const std::string& name, std::int64_t updates) {
    std::vector<Plan> plans;
    for (const char* id : kIds) {
      loaded_.config.env.id = id;
      loaded_.config.run.name = name + "-" + id;
      loaded_.config.learner.updates = updates;
      plans.push_back(make_plan(loaded_));
    }
    std::vector<const Plan*> all;
    for (const Plan& plan : plans) all.push_back(&plan);
    PopulationHooks hooks;
    hooks.seconds = hooks.wall_time = [] { return 0.0; };
    hooks.progress = [](std::size_t, double) {};
    hooks.ended = [](std::size_t, const std::string& why) { EXPECT_EQ(why, ""); };
    hooks.command = [](std::size_t) { return "test"; };
    EXPECT_TRUE(train_population(engine, all, hooks));
  }

  const TemporaryFolder dir_;
  LoadedConfig loaded_;
};

TEST_F(CudaPopulation, TheSameRunsGiveTheSameBytes) {
  const auto card = make_cuda_engine();
  train(*card, "one", 200);
  train(*card, "other", 200);
  for (const char* id : kIds) {
    for (const char* file : {"/metrics.jsonl", "/episodes.jsonl", "/policy.safetensors"}) {
      EXPECT_EQ(read_file(dir_ / ("one-" + std::string(id) + file)),
                read_file(dir_ / ("other-" + std::string(id) + file)))
          << id << file;
    }
  }
}

// A weight moves by at most the learning rate, 3e-4 or 1e-3, in its first update.
TEST_F(CudaPopulation, ItsFirstUpdateIsThatOfItsHostTwin) {
  const auto card = make_cuda_engine(), twin = make_host_engine();
  for (const bool rollouts : {false, true}) {
    if (rollouts) {
      Config& c = loaded_.config;
      c.staleness = {};
      c.staleness.regime = Regime::kOnPolicy;
      c.staleness.actors = 1;
      c.advantage.mode = AdvantageMode::kStored;
      c.replay.capacity = 256;
    }
    const std::string kind = rollouts ? "rollouts" : "replay";
    train(*card, "card " + kind, 1);
    train(*twin, "twin " + kind, 1);
    for (const std::string id : kIds) {
      const Weights one = load_policy(dir_ / ("card " + kind + "-" + id)).weights,
                    other = load_policy(dir_ / ("twin " + kind + "-" + id)).weights;
      for (std::size_t k = 0; k < one.policy.size(); ++k) ASSERT_NEAR(one.policy[k], other.policy[k], 1e-4) << id << k;
      for (std::size_t k = 0; k < one.critic.size(); ++k) ASSERT_NEAR(one.critic[k], other.critic[k], 1e-4) << id << k;
    }
  }
}

}  // namespace
}  // namespace gipo::population
