#include "gipo/env/env.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "gipo/core/error.h"
#include "gipo/core/message_of.h"
#include "gipo/io/bytes.h"

namespace gipo {
namespace {

using Numbers = std::vector<double>;

Numbers observation_of(const Env& env) {
  Numbers values(env.spec().observation_size);
  env.observe(values);
  return values;
}

Numbers random_action(const ActionSpace& space, RandomStream& random) {
  Numbers action;
  for (std::size_t i = 0; i < space.dims(); ++i) {
    action.push_back(space.kind == ActionSpace::Kind::kBox
                         ? random.uniform(space.low[i], space.high[i])
                         : static_cast<double>(random.below(static_cast<std::uint64_t>(space.choices[i]))));
  }
  return action;
}

// Observations and rewards of some steps, resetting where an episode ends.
Numbers trace(Env& env, RandomStream random, int steps) {
  Numbers values = observation_of(env);
  for (int t = 0; t < steps; ++t) {
    const StepResult r = env.step(random_action(env.spec().action, random));
    for (const double x : observation_of(env)) values.push_back(x);
    values.push_back(r.reward);
    if (r.terminated || r.truncated) env.reset();
  }
  return values;
}

void move_to(Env& env, const Numbers& state) {
  ByteWriter out;
  for (const double x : state) out.value(x);
  ByteReader in(out.bytes());
  env.load_physics(in);
}

TEST(Env, TimeLimitTruncates) {
  const auto env = make_env("Pendulum-v1");
  env->reset(1);
  for (int t = 1; t < 200; ++t) ASSERT_FALSE(env->step(Numbers{0}).truncated) << t;
  const StepResult last = env->step(Numbers{0});
  EXPECT_TRUE(last.truncated);
  EXPECT_FALSE(last.terminated);
}

TEST(Env, TimeLimitCanBeReplaced) {
  const auto brief = make_env("Pendulum-v1", 3);
  EXPECT_EQ(brief->spec().time_limit, 3);
  EXPECT_EQ(find_env("Pendulum-v1").time_limit, 200);
  brief->reset(1);
  for (const bool truncated : {false, false, true}) EXPECT_EQ(brief->step(Numbers{0}).truncated, truncated);

  const auto endless = make_env("Pendulum-v1", 0);
  endless->reset(1);
  for (int t = 0; t < 1000; ++t) ASSERT_FALSE(endless->step(Numbers{0}).truncated);

  EXPECT_THROW(make_env("Pendulum-v1", -1), Error);
}

TEST(Env, TerminationIsNotTruncation) {
  const auto env = make_env("CartPole-v1");
  env->reset(1);
  move_to(*env, {0, 0, 0.2, 3});
  const StepResult fallen = env->step(Numbers{1});
  EXPECT_TRUE(fallen.terminated);
  EXPECT_FALSE(fallen.truncated);
  EXPECT_EQ(fallen.reward, 1);
}

TEST(Env, TerminationOnTheLastStepReportsBoth) {
  const auto env = make_env("CartPole-v1", 1);
  env->reset(1);
  move_to(*env, {0, 0, 0.2, 3});
  const StepResult fallen = env->step(Numbers{1});
  EXPECT_TRUE(fallen.terminated);
  EXPECT_TRUE(fallen.truncated);
}

TEST(Env, FinalObservationStaysUntilReset) {
  const auto env = make_env("CartPole-v1");
  env->reset(1);
  move_to(*env, {0, 0, 0.2, 3});
  ASSERT_TRUE(env->step(Numbers{1}).terminated);
  const Numbers final_observation = observation_of(*env);
  EXPECT_NEAR(final_observation[2], 0.26, 1e-6);
  EXPECT_EQ(observation_of(*env), final_observation);
  EXPECT_NE(message_of<InvariantError>([&] { env->step(Numbers{1}); }).find("reset"), std::string::npos);
  EXPECT_EQ(observation_of(*env), final_observation);
  env->reset();
  EXPECT_NE(observation_of(*env), final_observation);
}

// A task that takes any action of its space.
class Composed final : public Env {
 public:
  Composed() : Env({"Composed", "", 1, {ActionSpace::Kind::kComposed, {3, 0}, {0, -1}, {0, 1}}, 0}) {}
  void observe(std::span<double> observation) const override { observation[0] = 0; }
  void save_physics(ByteWriter&) const override {}
  void load_physics(ByteReader&) override {}

 private:
  void start_episode(RandomStream&) override {}
  Outcome advance(std::span<const double>) override { return {}; }
};

TEST(Env, ComposedActionsAreCheckedWhereTheyAreChoices) {
  Composed env;
  env.reset(1);
  EXPECT_NO_THROW(env.step(Numbers{2, -0.37}));
  EXPECT_EQ(message_of<Error>([&] {
              env.step(Numbers{3, 0});
            }),
            "Composed: action[0] = 3 is not one of the choices 0 to 2");
  EXPECT_EQ(message_of<Error>([&] {
              env.step(Numbers{0, std::nan("")});
            }),
            "Composed: action[1] = nan is not a finite number");
}

TEST(Env, BadActionsAreRefused) {
  const auto cart = make_env("CartPole-v1");
  const auto refused = [&](const Numbers& action) { return message_of<Error>([&] { cart->step(action); }); };
  cart->reset(1);
  const Numbers before = observation_of(*cart);
  EXPECT_EQ(refused({2}), "CartPole-v1: action[0] = 2 is not one of the choices 0 to 1");
  EXPECT_EQ(refused({-1}), "CartPole-v1: action[0] = -1 is not one of the choices 0 to 1");
  EXPECT_EQ(refused({0.5}), "CartPole-v1: action[0] = 0.5 is not one of the choices 0 to 1");
  EXPECT_EQ(refused({0, 1}), "CartPole-v1: an action of 2 values where 1 belong");
  EXPECT_EQ(refused({std::nan("")}), "CartPole-v1: action[0] = nan is not a finite number");
  EXPECT_EQ(observation_of(*cart), before);

  const auto pendulum = make_env("Pendulum-v1");
  pendulum->reset(1);
  EXPECT_THROW(pendulum->step(Numbers{std::numeric_limits<double>::infinity()}), Error);
  EXPECT_NO_THROW(pendulum->step(Numbers{100}));
}

TEST(EveryEnv, SavedStateContinuesIdentically) {
  for (const EnvSpec& spec : registered_envs()) {
    SCOPED_TRACE(spec.id);
    // A short limit, so that what follows crosses resets: the random stream must be restored too.
    const auto env = make_env(spec.id, 30);
    env->reset(7);
    trace(*env, RandomStream(1), 47);
    ByteWriter out;
    env->save_state(out);
    const Numbers expected = trace(*env, RandomStream(2), 100);

    const auto other = make_env(spec.id, 30);
    ByteReader in(out.bytes());
    other->load_state(in);
    EXPECT_EQ(in.left(), 0u);
    EXPECT_EQ(trace(*other, RandomStream(2), 100), expected);
  }
}

TEST(EveryEnv, CutSavedStateIsRefused) {
  for (const EnvSpec& spec : registered_envs()) {
    const auto env = make_env(spec.id);
    env->reset(7);
    ByteWriter out;
    env->save_state(out);
    ByteReader in(std::string_view(out.bytes()).substr(0, out.bytes().size() - 1));
    EXPECT_THROW(make_env(spec.id)->load_state(in), Error) << spec.id;
  }
}

TEST(EveryEnv, SameSeedRepeats) {
  for (const EnvSpec& spec : registered_envs()) {
    SCOPED_TRACE(spec.id);
    const auto env = make_env(spec.id);
    env->reset(3);
    const Numbers first = trace(*env, RandomStream(1), 300);
    env->reset(3);
    EXPECT_EQ(trace(*env, RandomStream(1), 300), first);
    env->reset(4);
    EXPECT_NE(trace(*env, RandomStream(1), 300), first);
  }
}

TEST(EveryEnv, EpisodesOfOneStreamDiffer) {
  for (const EnvSpec& spec : registered_envs()) {
    const auto env = make_env(spec.id);
    env->reset(3);
    const Numbers first = observation_of(*env);
    bool differs = false;
    for (int n = 0; n < 20 && !differs; ++n) {
      env->reset();
      differs = observation_of(*env) != first;
    }
    EXPECT_TRUE(differs) << spec.id;
  }
}

TEST(EveryEnv, NeedsResetBeforeTheFirstStep) {
  RandomStream random(1);
  for (const EnvSpec& spec : registered_envs()) {
    EXPECT_THROW(make_env(spec.id)->step(random_action(spec.action, random)), InvariantError) << spec.id;
  }
}

// Starts are uniform: the extremes of many come near the bounds and never cross them.
void expect_uniform_start(const std::string& id, const Numbers& low, const Numbers& high) {
  SCOPED_TRACE(id);
  const auto env = make_env(id);
  const int episodes = 5000;
  Numbers least(low.size(), 1e9), most(low.size(), -1e9), mean(low.size(), 0);
  env->reset(11);
  for (int n = 0; n < episodes; ++n, env->reset()) {
    ByteWriter out;
    env->save_physics(out);
    ByteReader in(out.bytes());
    for (std::size_t i = 0; i < low.size(); ++i) {
      const double x = in.value<double>();
      least[i] = std::min(least[i], x);
      most[i] = std::max(most[i], x);
      mean[i] += x / episodes;
    }
  }
  for (std::size_t i = 0; i < low.size(); ++i) {
    const double width = high[i] - low[i];
    const double rounding = 1e-7;  // of a float32 start
    EXPECT_GE(least[i], low[i] - rounding);
    EXPECT_LE(most[i], high[i] + rounding);
    EXPECT_LE(least[i], low[i] + 0.01 * width);
    EXPECT_GE(most[i], high[i] - 0.01 * width);
    EXPECT_NEAR(mean[i], (low[i] + high[i]) / 2, 0.02 * width);
  }
}

TEST(ClassicEnvs, StartsAreUniformWithinTheirBounds) {
  const double pi = 3.14159265358979;
  expect_uniform_start("CartPole-v1", Numbers(4, -0.05), Numbers(4, 0.05));
  expect_uniform_start("Acrobot-v1", Numbers(4, -0.1), Numbers(4, 0.1));
  expect_uniform_start("MountainCarContinuous-v0", {-0.6, 0}, {-0.4, 0});
  expect_uniform_start("Pendulum-v1", {-pi, -1}, {pi, 1});
}

TEST(ClassicEnvs, ObservationsAreFloat32) {
  for (const char* id : {"CartPole-v1", "Acrobot-v1", "MountainCarContinuous-v0", "Pendulum-v1"}) {
    const auto env = make_env(id);
    env->reset(5);
    RandomStream random(1);
    env->step(random_action(env->spec().action, random));
    for (const double x : observation_of(*env)) {
      char text[32];  // through text, so that no compiler can skip the rounding
      std::snprintf(text, sizeof text, "%.17g", x);
      EXPECT_EQ(static_cast<double>(std::strtof(text, nullptr)), x) << id;
    }
  }
}

TEST(MemoryEnvs, HiddenVelocityIsCartPoleWithTwoOfItsNumbers) {
  const auto whole = make_env("CartPole-v1"), hidden = make_env("CartPoleHiddenVelocity-v1");
  whole->reset(4);
  hidden->reset(4);
  for (int n = 0; whole->running(); ++n) {
    const Numbers action = {n % 3 == 0 ? 1.0 : 0.0}, all = observation_of(*whole);
    EXPECT_EQ(observation_of(*hidden), (Numbers{all[0], all[2]}));
    const StepResult one = whole->step(action), other = hidden->step(action);
    EXPECT_EQ(one.reward, other.reward);
    EXPECT_EQ(one.terminated, other.terminated);
  }
}

TEST(MemoryEnvs, RecallShowsItsSignOnceAndPaysForTheTurn) {
  const auto env = make_env("Recall-v0");
  env->reset(1);
  for (int episode = 0; episode < 20; ++episode, env->reset()) {
    const double sign = observation_of(*env)[0], turn = episode % 2;
    EXPECT_EQ(std::abs(sign), 1);
    for (int n = 0; n < 11; ++n) {
      EXPECT_EQ(observation_of(*env), (Numbers{n == 0 ? sign : 0.0, 0}));
      const StepResult step = env->step(Numbers{turn});
      EXPECT_FALSE(step.terminated);
      EXPECT_EQ(step.reward, 0);
    }
    EXPECT_EQ(observation_of(*env), (Numbers{0, 1}));
    const StepResult last = env->step(Numbers{turn});
    EXPECT_TRUE(last.terminated);
    EXPECT_EQ(last.reward, (sign > 0) == (turn > 0) ? 1 : 0);
  }
}

TEST(Registry, UnknownIdNamesTheNearest) {
  const std::string message = message_of<Error>([] { make_env("CartPole-v2"); });
  EXPECT_NE(message.find("CartPole-v2 is not known (did you mean CartPole-v1?)"), std::string::npos) << message;
  EXPECT_NE(message.find("Acrobot-v1, "), std::string::npos) << message;
  EXPECT_THROW(find_env(""), Error);
}

TEST(Registry, IsSortedAndComplete) {
  const std::vector<EnvSpec> specs = registered_envs();
  EXPECT_TRUE(std::ranges::is_sorted(specs, {}, &EnvSpec::id));
  for (const EnvSpec& spec : specs) {
    SCOPED_TRACE(spec.id);
    EXPECT_FALSE(spec.summary.empty());
    EXPECT_EQ(spec.summary.find('\n'), std::string::npos);
    EXPECT_GT(spec.observation_size, 0u);
    EXPECT_GT(spec.action.dims(), 0u);
    EXPECT_EQ(make_env(spec.id)->spec().id, spec.id);
    EXPECT_EQ(find_env(spec.id).time_limit, spec.time_limit);
  }
}

}  // namespace
}  // namespace gipo
