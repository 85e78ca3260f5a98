#include "gipo/remote/agreement.h"

#include <gtest/gtest.h>

#include "gipo/core/stop.h"
#include "gipo/io/bytes.h"
#include "gipo/plan/plan.h"
#include "gipo/train/actor.h"
#include "gipo/train/report_wire.h"

namespace gipo {
namespace {

Plan plan_with(Widths hidden, std::int64_t envs) {
  LoadedConfig loaded;
  loaded.config.policy.hidden = std::move(hidden);
  loaded.config.env.count = envs;
  return make_plan(loaded);
}

TEST(Agreement, WhatFollowsFromTheConfigAnActorIsSentIsTheLearners) {
  Plan plan = plan_with({16}, 4);
  plan.config.env.python = "/elsewhere/python";
  const std::string sent = config_for_actors(plan);
  EXPECT_EQ(sent.find("/elsewhere"), std::string::npos);
  const Plan there = make_plan(parse_config(sent, "sent"));
  EXPECT_EQ(disagreement(agreement_of(plan), agreement_of(there)), "");
}

TEST(Agreement, TheFirstDifferenceIsNamed) {
  const std::string one = agreement_of(plan_with({16}, 4));
  EXPECT_NE(disagreement(one, agreement_of(plan_with({32}, 4))).find("tensor"), std::string::npos);
  EXPECT_NE(disagreement(one, agreement_of(plan_with({16}, 2))).find("environments of an actor: 2"), std::string::npos);
  EXPECT_NE(disagreement(one, "").find("nothing"), std::string::npos);
}

// Episodes of one step, the worst case: each a segment of its own.
TEST(Agreement, NoReportIsLargerThanItsBound) {
  LoadedConfig loaded;
  loaded.config.env.time_limit = 1;
  loaded.config.policy.hidden = {8};
  const Plan plan = make_plan(loaded);
  const std::size_t rounds = report_rounds(plan);
  ASSERT_GE(rounds, 2u);
  Actor actor(actor_spec(plan, 0));
  const Weights weights = initial_weights(plan.model, RandomStream(1));
  for (std::size_t r = 0; r < rounds; ++r) actor.step(weights, 0);
  const ActorReport& report = actor.report();
  ASSERT_EQ(report.segments.size(), rounds * plan.envs_per_actor);
  ByteWriter out;
  encode_report(report, out);
  EXPECT_LE(out.bytes().size(), most_report_bytes(plan, rounds));
}

}  // namespace
}  // namespace gipo
