#include "gipo/env/bridge/bridge.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "gipo/core/error.h"
#include "gipo/core/stop.h"
#include "gipo/io/temporary_folder.h"

namespace gipo {
namespace {

// An environment that needs no package but NumPy: its observation is (seed or number of the reset, steps); action 1 ends
// the episode, 2 kills the process, 3 raises.
constexpr const char* kModule = R"(
import os, sys, time
import numpy as np

class Box:
    def __init__(self, *shape):
        self.shape, self.dtype, self.low, self.high = shape, np.dtype("float32"), np.zeros(shape), np.ones(shape)

class Discrete:
    def __init__(self, n):
        self.n, self.start, self.shape, self.dtype = n, 0, (), np.dtype("int64")

class Env:
    def __init__(self, dies_at_reset=False, hangs_at=0, limit=0):
        if limit:
            self._max_episode_steps = limit
        self.hangs_at = hangs_at
        self.dies_at_reset, self.observation_space, self.action_space = dies_at_reset, Box(2), Discrete(4)
        self.episode = self.resets = 0
    def seen(self):
        return np.array([self.episode, self.steps])
    def reset(self, seed=None):
        self.resets += 1
        if self.dies_at_reset and self.resets > 1:
            print("never again", file=sys.stderr, flush=True)
            os._exit(5)
        self.episode, self.steps = self.episode + 1 if seed is None else seed % 1000, 0
        return self.seen(), {}
    def step(self, action):
        self.steps += 1
        if action == 2:
            os._exit(7)
        if self.steps == self.hangs_at:
            time.sleep(1000)
        if action == 3:
            raise ValueError("three is too many")
        return self.seen(), 0.5 * self.steps, bool(action == 1), False, {"success": action == 1}
)";

class BridgeTest : public testing::Test {
 protected:
  BridgeTest() {
    std::ofstream(folder_.path() + "/sample.py") << kModule;
    options_.id = "python:" + folder_.path() + "/sample.py:Env";
  }

  std::vector<std::unique_ptr<Env>> make(std::size_t count, std::size_t workers, bool restart = true) {
    return make_envs(ask_spec(options_, given_), options_, given_, {count, workers, restart});
  }

  static std::vector<double> seen(const Env& env) {
    std::vector<double> observation(2);
    env.observe(observation);
    return observation;
  }

  static StepResult step(Env& env, double action) { return env.step(std::vector<double>{action}); }

  TemporaryFolder folder_;
  EnvOptions options_;
  OptionValues given_;
};

TEST_F(BridgeTest, SpacesAreAsked) {
  const EnvSpec spec = ask_spec(options_, {});
  EXPECT_EQ(spec.id, options_.id);
  EXPECT_EQ(spec.observation_size, 2u);
  EXPECT_EQ(spec.action.kind, ActionSpace::Kind::kDiscrete);
  EXPECT_EQ(spec.action.choices, std::vector<std::int64_t>{4});
  EXPECT_FALSE(spec.saves_state);
}

// An episode without an end would never be counted, and an evaluation of it never be over.
TEST_F(BridgeTest, ATaskWithoutATimeLimitGetsOne) {
  EXPECT_EQ(ask_spec(options_, {}).time_limit, 10'000);
  EXPECT_EQ(ask_spec(options_, {{"limit", std::int64_t{50}}}).time_limit, 0) << "it ends its episodes itself";
  options_.time_limit = 70;
  EXPECT_EQ(ask_spec(options_, {}).time_limit, 70);
}

TEST_F(BridgeTest, AWorkerThatDoesNotAnswerIsReplacedLikeADeadOne) {
  given_ = {{"hangs_at", std::int64_t{3}}};
  const EnvSpec spec = ask_spec(options_, given_);
  options_.step_timeout = 1;
  const auto envs = make_envs(spec, options_, given_, {1, 1});
  envs[0]->reset(5);
  EXPECT_EQ(step(*envs[0], 0).fault, nullptr);
  EXPECT_EQ(step(*envs[0], 0).fault, nullptr);
  EXPECT_EQ(step(*envs[0], 0).fault, kWorkerDied);
  EXPECT_NE(envs[0]->last_death().find("did not answer within 1 s (env.step_timeout)"), std::string::npos)
      << envs[0]->last_death();
  envs[0]->reset();
  EXPECT_EQ(step(*envs[0], 0).fault, nullptr);
}

TEST_F(BridgeTest, ATaskThatHangsWhenItIsTriedOutIsRefused) {
  options_.step_timeout = 2;
  try {
    ask_spec(options_, {{"hangs_at", std::int64_t{1}}});
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("did not answer within 2 s"), std::string::npos) << e.what();
  }
}

TEST_F(BridgeTest, AWaitForAWorkerThatHangsCanBeStopped) {
  given_ = {{"hangs_at", std::int64_t{2}}};
  const EnvSpec spec = ask_spec(options_, given_);
  Stop stop;
  const auto envs = make_envs(spec, options_, given_, {2, 2, true, &stop});
  for (const auto& env : envs) env->reset(5);
  EXPECT_EQ(step(*envs[0], 0).fault, nullptr);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop.request();
  });
  EXPECT_THROW(step(*envs[0], 0), Interrupted);
  other.join();
}

TEST_F(BridgeTest, FinalObservationStaysUntilReset) {
  auto envs = make(1, 1);
  envs[0]->reset(3);
  const double first = seen(*envs[0])[0];
  EXPECT_EQ(step(*envs[0], 0).reward, 0.5);
  const StepResult last = step(*envs[0], 1);
  EXPECT_TRUE(last.terminated);
  EXPECT_FALSE(last.truncated);
  EXPECT_EQ(last.success, 1);
  EXPECT_EQ(seen(*envs[0]), (std::vector<double>{first, 2}));
  envs[0]->reset();
  EXPECT_EQ(seen(*envs[0]), (std::vector<double>{first + 1, 0})) << "one reset, without a seed";
  EXPECT_EQ(step(*envs[0], 0).success, 0);
  EXPECT_EQ(seen(*envs[0]), (std::vector<double>{first + 1, 1}));
}

TEST_F(BridgeTest, ResetInTheMiddleOfAnEpisodeAndTwiceInARow) {
  auto envs = make(1, 1);
  envs[0]->reset(3);
  const double first = seen(*envs[0])[0];
  step(*envs[0], 0);
  envs[0]->reset();
  EXPECT_EQ(seen(*envs[0]), (std::vector<double>{first + 1, 0}));
  envs[0]->reset();
  EXPECT_EQ(seen(*envs[0]), (std::vector<double>{first + 2, 0}));
}

TEST_F(BridgeTest, SeedsGoToTheEnvironmentWhateverItsWorker) {
  std::vector<std::vector<double>> starts;
  for (const std::size_t workers : {1, 2, 5}) {
    auto envs = make(5, workers);
    for (std::size_t i = 0; i < envs.size(); ++i) envs[i]->reset(100 + i);
    starts.emplace_back();
    for (const auto& env : envs) starts.back().push_back(seen(*env)[0]);
  }
  EXPECT_EQ(starts[0], starts[1]);
  EXPECT_EQ(starts[0], starts[2]);
  EXPECT_NE(starts[0][0], starts[0][1]);
}

TEST_F(BridgeTest, StepsOfAllWorkersAreTakenTogether) {
  auto envs = make(5, 2);
  for (auto& env : envs) env->reset(1);
  for (int t = 1; t <= 3; ++t) {
    for (auto& env : envs) env->begin_step(std::vector<double>{0});
    for (auto& env : envs) EXPECT_EQ(step(*env, 0).reward, 0.5 * t);
  }
}

TEST_F(BridgeTest, TimeLimitIsTheProgramsOwn) {
  options_.time_limit = 2;
  auto envs = make(1, 1);
  envs[0]->reset(1);
  EXPECT_FALSE(step(*envs[0], 0).truncated);
  const StepResult last = step(*envs[0], 0);
  EXPECT_TRUE(last.truncated);
  EXPECT_FALSE(last.terminated);
  EXPECT_EQ(seen(*envs[0])[1], 2);
  envs[0]->reset();
  EXPECT_EQ(seen(*envs[0])[1], 0);
  EXPECT_EQ(step(*envs[0], 0).reward, 0.5);
}

TEST_F(BridgeTest, ADeadWorkerCostsItsOwnEpisodesAlone) {
  auto envs = make(3, 3);
  for (std::size_t i = 0; i < envs.size(); ++i) envs[i]->reset(i);
  const double first = seen(*envs[1])[0];
  for (std::size_t i = 0; i < envs.size(); ++i) envs[i]->begin_step(std::vector<double>{i == 1 ? 2.0 : 0.0});
  EXPECT_EQ(step(*envs[0], 0).fault, nullptr);
  EXPECT_EQ(step(*envs[1], 2).fault, kWorkerDied);
  EXPECT_EQ(step(*envs[2], 0).fault, nullptr);
  EXPECT_FALSE(envs[1]->running());
  EXPECT_NE(envs[1]->last_death().find("exit code 7"), std::string::npos) << envs[1]->last_death();
  envs[1]->reset();
  EXPECT_EQ(seen(*envs[1])[1], 0);
  EXPECT_NE(seen(*envs[1])[0], first) << "another incarnation, another seed";
  EXPECT_EQ(step(*envs[1], 0).reward, 0.5);
  EXPECT_EQ(step(*envs[0], 0).reward, 1);
}

TEST_F(BridgeTest, ALostNeighbourIsToldOnce) {
  auto envs = make(2, 1);
  for (auto& env : envs) env->reset(1);
  for (auto& env : envs) EXPECT_EQ(seen(*env)[1], 0);
  EXPECT_EQ(step(*envs[0], 2).fault, kWorkerDied);
  envs[0]->reset();
  EXPECT_EQ(step(*envs[0], 0).fault, nullptr);
  EXPECT_EQ(step(*envs[1], 0).fault, kWorkerDied);
  envs[1]->reset();
  EXPECT_EQ(step(*envs[1], 0).fault, nullptr);
}

TEST_F(BridgeTest, AWorkerThatKeepsDyingEndsTheRunWithItsWords) {
  given_["dies_at_reset"] = true;
  options_.max_deaths = 2;
  auto envs = make(1, 1);
  envs[0]->reset(1);
  try {
    for (int i = 0; i < 10; ++i) {
      step(*envs[0], 1);
      envs[0]->reset();
      seen(*envs[0]);
    }
    FAIL() << "nothing thrown";
  } catch (const RunError& e) {
    EXPECT_NE(std::string(e.what()).find("died 2 times in a row"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("never again"), std::string::npos) << e.what();
  }
}

TEST_F(BridgeTest, AnExceptionIsTheUsersTraceback) {
  auto envs = make(1, 1);
  envs[0]->reset(1);
  try {
    step(*envs[0], 3);
    FAIL() << "nothing thrown";
  } catch (const RunError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("step raised ValueError"), std::string::npos) << text;
    EXPECT_NE(text.find("sample.py"), std::string::npos) << text;
    EXPECT_NE(text.find("three is too many"), std::string::npos) << text;
  }
}

TEST_F(BridgeTest, WithoutRestartEveryEpisodeHasItsSeed) {
  auto envs = make(1, 1, false);
  envs[0]->reset(5);
  const std::vector<double> first = seen(*envs[0]);
  step(*envs[0], 1);
  envs[0]->reset(5);
  EXPECT_EQ(seen(*envs[0]), first);
}

TEST_F(BridgeTest, AMissingPythonIsNamed) {
  options_.python = "/nowhere/python";
  try {
    ask_spec(options_, {});
    FAIL() << "nothing thrown";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("/nowhere/python does not start"), std::string::npos) << e.what();
  }
}

TEST(Slots, RowsDoNotOverlap) {
  const Fields fields = {{"a", DType::kFloat32, {5}}, {"b", DType::kUint8, {3, 3}}};
  Slots slots(3, fields, 2);
  std::vector<std::byte> memory(slots.bytes);
  slots.memory = memory.data();
  EXPECT_GE(slots.observation(0, 0), reinterpret_cast<const std::byte*>(slots.reward() + 3));
  EXPECT_EQ(slots.observation(0, 2) - slots.observation(0, 1), 5 * 4);
  EXPECT_EQ(slots.start(1, 2) - slots.start(1, 1), 9);
  EXPECT_GE(slots.start(0, 0), slots.observation(0, 2) + 5 * 4);
  EXPECT_GE(slots.observation(1, 0), slots.start(0, 2) + 5 * 4);
  EXPECT_GE(slots.start(1, 0), slots.observation(1, 2) + 9);
  EXPECT_LE(slots.start(1, 2) + 9, memory.data() + slots.bytes);
  EXPECT_GE(reinterpret_cast<const std::byte*>(slots.reward()),
            reinterpret_cast<const std::byte*>(slots.action(2).data() + 2));
}

}  // namespace
}  // namespace gipo
