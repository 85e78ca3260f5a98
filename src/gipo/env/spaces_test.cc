#include "gipo/env/spaces.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gipo/core/error.h"

namespace gipo {
namespace {

TEST(Spaces, NativeTasksSayTheirsAsAWorkerDoes) {
  EnvSpec spec;
  spec.observation_size = 3;
  const std::string row =
      R"({"observation":{"kind":"Box","shape":[3],"low":null,"high":null,"dtype":"float32"},"action":)";
  spec.action = ActionSpace::discrete(4);
  EXPECT_EQ(native_spaces(spec), row + R"({"kind":"Discrete","shape":[],"dtype":"int64","n":4,"start":0}})");
  spec.action = {ActionSpace::Kind::kMultiDiscrete, {2, 3}, {}, {}};
  EXPECT_EQ(native_spaces(spec),
            row + R"({"kind":"MultiDiscrete","shape":[2],"nvec":[2,3],"start":[0,0],"dtype":"int64"}})");
  spec.action = ActionSpace::box({-2, -2}, {2, HUGE_VAL});
  EXPECT_EQ(native_spaces(spec), row + R"({"kind":"Box","shape":[2],"low":-2.0,"high":[2.0,null],"dtype":"float32"}})");
}

TEST(Spaces, OfATaskThatWasAsked) {
  EnvOptions env;
  env.id = "CartPole-v1";
  EXPECT_EQ(ask_spec(env, {}).spaces, native_spaces(ask_spec(env, {})));
}

TEST(Spaces, ATaskOfOneVectorHasNothingForACriticAloneAndNoMask) {
  EnvOptions env;
  env.id = "CartPole-v1";
  const auto refused = [&](const std::string& words) {
    try {
      ask_spec(env, {});
      FAIL() << "accepted";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  };
  env.critic_fields = "speed";
  refused("env.critic_fields = speed: CartPole-v1 has no field speed; its fields: observation");
  env.critic_fields = "observation";
  refused("no field of the observation is left for the policy to see");
  env.critic_fields = "";
  env.mask = "info";
  refused("env.mask = info: CartPole-v1 has no mask; wanted auto or none");
}

}  // namespace
}  // namespace gipo
