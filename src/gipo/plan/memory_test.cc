#include "gipo/plan/memory.h"

#include <gtest/gtest.h>

#include <limits>

#include "gipo/core/error.h"

namespace gipo {
namespace {

double part(const MemoryNeed& need, const std::string& name) {
  for (const MemoryNeed::Part& p : need.parts) {
    if (p.name == name) return p.bytes;
  }
  ADD_FAILURE() << "no part " << name;
  return 0;
}

LoadedConfig million() {
  return parse_config("replay = {capacity = 1000000}\nstaleness = {regime = 'custom'}\n", "run.toml");
}

TEST(MemoryNeed, FollowsWhatItIsMadeOf) {
  LoadedConfig loaded = million();
  const MemoryNeed one = memory_need(make_plan(loaded));
  const ReplayShape shape = make_plan(loaded).replay_shape();
  const auto payload = static_cast<double>(1'000'000 * ReplayBuffer::bytes_per_transition(shape));
  EXPECT_NEAR(part(one, "replay"), 1.08 * payload, 0.02 * payload);
  EXPECT_EQ(part(one, "workers"), 0);
  EXPECT_LT(part(one, "checkpoint"), 5e6) << "the replay is not copied";

  loaded.config.replay.capacity = 2'000'000;
  loaded.config.run.mode = RunMode::kAsync;
  const MemoryNeed two = memory_need(make_plan(loaded));
  EXPECT_NEAR(part(two, "replay"), 2 * part(one, "replay"), 1e5);
  EXPECT_EQ(part(two, "batches"), 2 * part(one, "batches"));
  EXPECT_GT(part(two, "weights"), part(one, "weights"));
}

TEST(MemoryNeed, TheReplayIsAsLargeAsItSays) {
  for (const std::int64_t length : {1, 8, 64}) {
    LoadedConfig loaded = million();
    loaded.config.replay.segment_length = length;
    const ReplayShape shape = make_plan(loaded).replay_shape();
    const ReplayBuffer replay(shape, RandomStream(1));
    const auto bytes = static_cast<double>(replay.bytes());
    EXPECT_NEAR(ReplayBuffer::bytes_needed(shape), bytes, 0.01 * bytes) << length;
  }
}

TEST(MemoryNeed, WhatDoesNotFitIsRefusedWithNumbersAndOptions) {
  const LoadedConfig loaded = million();
  const Plan plan = make_plan(loaded);
  EXPECT_NO_THROW(refuse_what_does_not_fit(plan, loaded.origins, {memory_need(plan).total() + 1e6, 0, "x"}));
  EXPECT_NO_THROW(refuse_what_does_not_fit(plan, loaded.origins, {std::numeric_limits<double>::infinity(), 0, "x"}));
  const auto said = [&](const MemoryLimit& limit) -> std::string {
    try {
      refuse_what_does_not_fit(plan, loaded.origins, limit);
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing";
  };
  const std::string text = said({40e6, 0, "the control group /job"});
  for (const char* part : {"run.toml:1: ", "the run needs about ", " MB for replay",
                           "the control group /job has 40.0 MB: ", "lower replay.capacity = 1000000"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  // What others use is not there for this run.
  EXPECT_NE(said({200e6, 170e6, "the control group /job"}).find("200.0 MB, of which others use 170.0 MB"),
            std::string::npos);
}

}  // namespace
}  // namespace gipo
