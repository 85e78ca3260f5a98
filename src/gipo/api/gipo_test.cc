#include "gipo/api/gipo.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <thread>

#include "gipo/io/temporary_folder.h"

namespace gipo {
namespace {

constexpr std::array<float, 4> kLeaning = {0.0F, 0.0F, 0.1F, 0.5F};

std::vector<std::string> small_run(const TemporaryFolder& folder) {
  return {"env.id=CartPole-v1",  "policy.hidden=[16, 16]",   "learner.batch_size=64",    "learner.updates=60",
          "eval.episodes=2",     "replay.segment_length=16", "run.dir=" + folder.path(), "run.name=a",
          "log.every_updates=10"};
}

TEST(Api, TrainsResumesAndReadsTheResult) {
  const TemporaryFolder folder;
  std::int64_t told = 0;
  TrainingHooks hooks;
  hooks.progress = [&](const TrainingStatus& status) {
    EXPECT_GT(status.update, told);
    EXPECT_EQ(status.updates, 60);
    told = status.update;
  };
  const TrainingResult result = train("", small_run(folder), hooks);
  EXPECT_EQ(told, 60);
  EXPECT_EQ(result.run_dir, folder / "a");
  EXPECT_EQ(result.ended, "finished");
  EXPECT_EQ(result.updates, 60);
  EXPECT_GT(result.eval_return, 0);

  EXPECT_THROW(train("", small_run(folder)), Error);  // the folder exists
  EXPECT_EQ(train("", small_run(folder), {}, true).eval_return, result.eval_return);

  EXPECT_EQ(resume(result.run_dir, 80).updates, 80);
  const TrainingResult read = read_result(result.run_dir);
  EXPECT_EQ(read.updates, 80);
  EXPECT_GT(read.env_steps, result.env_steps);
}

TEST(Api, StopsWhenAsked) {
  const TemporaryFolder folder;
  std::atomic<bool> stop{false};
  TrainingHooks hooks;
  hooks.stop = &stop;
  hooks.progress = [&](const TrainingStatus&) { stop = true; };
  const TrainingResult result = train("", small_run(folder), hooks);
  EXPECT_EQ(result.ended, "interrupted");
  EXPECT_LT(result.updates, 60);
  EXPECT_TRUE(std::isnan(result.eval_return));
  EXPECT_EQ(resume(result.run_dir).ended, "finished");
}

TEST(Api, TwoThreadsTrainSideBySide) {
  const TemporaryFolder alone, together;
  const double expected = train("", small_run(alone)).final_return;
  std::vector<std::string> other = small_run(together);
  other.push_back("run.name=b");
  TrainingResult first, second;
  {
    const std::jthread a([&] { first = train("", small_run(together)); });
    const std::jthread b([&] { second = train("", other); });
  }
  EXPECT_EQ(first.final_return, expected);
  EXPECT_EQ(second.final_return, expected);
}

TEST(Api, PolicyActs) {
  const TemporaryFolder folder;
  TrainedPolicy policy(train("", small_run(folder)).run_dir);
  EXPECT_EQ(policy.env_id(), "CartPole-v1");
  EXPECT_EQ(policy.version(), 60);
  EXPECT_EQ(policy.observation_size(), 4U);
  EXPECT_EQ(policy.action_size(), 1U);
  EXPECT_EQ(policy.mask_size(), 0U);

  const std::vector<double> action = policy.act(kLeaning);
  EXPECT_TRUE(action == std::vector<double>{0} || action == std::vector<double>{1});
  EXPECT_EQ(policy.act(kLeaning), action);
  EXPECT_TRUE(std::isfinite(policy.value(kLeaning)));

  const auto drawn = [&] {
    std::vector<double> out(40);
    policy.seed(7);
    for (double& action_now : out) action_now = policy.sample(kLeaning)[0];
    return out;
  };
  const std::vector<double> first = drawn();
  EXPECT_EQ(drawn(), first);
  EXPECT_NE(first, std::vector<double>(40, first[0]));  // both actions come up
}

TEST(Api, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  EXPECT_THROW(train("", {"learner.updats=3"}), Error);
  EXPECT_THROW(train(folder / "missing.toml"), Error);
  EXPECT_THROW(resume(folder / "missing"), Error);
  EXPECT_THROW(read_result(folder.path()), Error);
  std::ofstream(folder / "summary.json") << R"({"ended": 3})";
  EXPECT_THROW(read_result(folder.path()), Error);
  EXPECT_THROW(TrainedPolicy(folder.path()), Error);

  TrainedPolicy policy(train("", small_run(folder)).run_dir);
  EXPECT_THROW(policy.act(std::span(kLeaning).first(3)), Error);
  EXPECT_THROW(policy.act(kLeaning, std::array<std::uint8_t, 2>{1, 1}), Error);
  EXPECT_THROW(policy.value(std::array{0.0F, 0.0F, 0.0F, std::numeric_limits<float>::infinity()}), Error);
}

}  // namespace
}  // namespace gipo
