#include "gipo/train/open_group.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>

#include "gipo/core/error.h"
#include "gipo/core/message_of.h"
#include "gipo/io/bytes.h"
#include "gipo/objective/advantage.h"
#include "gipo/train/small_runs.h"

namespace gipo {
namespace {

std::atomic<int> bad_period{0}, steps_taken{0};
std::atomic<bool> hopeless{false};

// Sparse: a reward of 1 at the end of an episode that went five of its six steps, or all, to the side that it began with.
class Side final : public Env {
 public:
  static EnvSpec spec_of(const char* id, std::int64_t limit) {
    return {id, "for tests", 3, ActionSpace::discrete(2), limit};
  }
  explicit Side(EnvSpec spec) : Env(std::move(spec)) {}
  void observe(std::span<double> o) const override {
    o[0] = bad_ ? std::nan("") : start_;
    o[1] = position_;
    o[2] = left_;
  }
  void save_physics(ByteWriter& out) const override { out.value(start_), out.value(position_), out.value(left_); }
  void load_physics(ByteReader& in) override {
    for (double* v : {&start_, &position_, &left_}) *v = in.value<double>();
  }

 private:
  void start_episode(RandomStream& random) override {
    start_ = 2 * random.uniform() - 1;
    position_ = 0, left_ = 6, bad_ = false;
  }
  Outcome advance(std::span<const double> action) override {
    position_ += 2 * action[0] - 1;
    left_ -= 1;
    bad_ = bad_period > 0 && ++steps_taken % bad_period == 0;
    return {!hopeless && left_ == 0 && position_ * start_ > 0 && std::abs(position_) >= 4 ? 1.0 : 0.0, false};
  }
  double start_ = 0, position_ = 0, left_ = 0;
  bool bad_ = false;
};
const RegisterEnv kSide{Side::spec_of("Side-v0", 6),
                        [] { return std::make_unique<Side>(Side::spec_of("Side-v0", 6)); }};
const RegisterEnv kEndless{Side::spec_of("Endless-v0", 0),
                           [] { return std::make_unique<Side>(Side::spec_of("Endless-v0", 0)); }};

class Groups : public SmallRuns, public ::testing::Test {
 protected:
  Groups() {
    Config& c = loaded_.config;
    c.env.id = "Side-v0";
    c.advantage.mode = AdvantageMode::kGroup;
    c.advantage.group_size = 4;
    c.replay.segment_length = 4;  // an episode has two segments
    c.eval.episodes = 50;
    hooks_.stop = &stop_;
  }
  ~Groups() override { bad_period = 0, hopeless = false; }

  Plan plan() { return make_plan(loaded_); }
  // What an actor reports in so many rounds, in copies.
  std::vector<Segment> played(Actor& actor, const Weights& weights, int rounds, GroupCounts* counts = nullptr) {
    std::vector<Segment> all;
    for (int i = 0; i < rounds; ++i) {
      actor.step(weights, i);
      const ActorReport& report = actor.report();
      all.insert(all.end(), report.segments.begin(), report.segments.end());
      if (counts) counts->add(report.groups);
    }
    return all;
  }

  std::atomic<bool> stop_{false};
};

float sum_of(const Segment& s) {
  float sum = 0;
  for (std::size_t t = 0; t < s.length; ++t) sum += s.reward()[t];
  return sum;
}

TEST_F(Groups, EpisodesOfAGroupBeginAlikeAndEnterTogetherWithTheirAdvantages) {
  loaded_.config.env.count = 1;
  const Plan p = plan();
  const Weights weights = initial_weights(p.model, RandomStream(1));
  Actor actor(actor_spec(p, 0));
  EXPECT_TRUE(played(actor, weights, 23).empty()) << "the last of four episodes of six steps has not ended";
  std::set<float> starts;
  int with_variance = 0;
  for (int group = 0; group < 40; ++group) {
    const std::vector<Segment> segments = played(actor, weights, group == 0 ? 1 : 24);
    ASSERT_EQ(segments.size(), 8u);
    std::vector<double> returns, advantages(4);
    for (std::size_t i = 0; i < 8; i += 2) returns.push_back(sum_of(segments[i]) + sum_of(segments[i + 1]));
    group_advantages(returns, true, advantages);
    with_variance += !without_variance(returns);
    starts.insert(segments[0].observation()[0]);
    for (std::size_t i = 0; i < 8; ++i) {
      const Segment& s = segments[i];
      EXPECT_EQ(s.length, i % 2 == 0 ? 4u : 2u);
      EXPECT_EQ(s.observation()[0], segments[0].observation()[0]) << "another start";
      for (std::size_t t = 0; t < s.length; ++t) {
        EXPECT_EQ(s.advantage()[t], static_cast<float>(advantages[i / 2]));
        const double left = static_cast<double>(i % 2 == 0 ? 5 - t : 1 - t);
        EXPECT_NEAR(s.target()[t], returns[i / 2] * std::pow(p.config.advantage.gamma, left), 1e-6);
      }
    }
  }
  EXPECT_EQ(starts.size(), 40u);
  EXPECT_GT(with_variance, 5);
}

TEST_F(Groups, WithoutVarianceAreCountedAndDroppedWhereThatIsAsked) {
  GroupCounts counts, kept_counts;
  const Weights weights = initial_weights(plan().model, RandomStream(1));
  Actor all(actor_spec(plan(), 0));
  const std::size_t whole = played(all, weights, 24 * 20, &counts).size();
  loaded_.config.advantage.filter_groups = true;
  Actor some(actor_spec(plan(), 0));
  const std::size_t kept = played(some, weights, 24 * 20, &kept_counts).size();
  EXPECT_EQ(counts.all, 40u);
  EXPECT_GT(counts.without_variance, 5u);
  EXPECT_EQ(kept_counts.without_variance, counts.without_variance);
  EXPECT_EQ(whole, 8 * counts.all);
  EXPECT_EQ(kept, 8 * (counts.all - counts.without_variance));
}

TEST_F(Groups, AnActorGoesOnIdenticallyFromTheMiddleOfAGroup) {
  const Plan p = plan();
  const Weights weights = initial_weights(p.model, RandomStream(1));
  for (const int moment : {3, 6, 17, 23, 24, 29}) {
    Actor one(actor_spec(p, 0)), two(actor_spec(p, 0));
    played(one, weights, moment);
    played(two, weights, 2 * moment + 5);  // buffers that were used before
    ByteWriter saved;
    one.save(saved);
    ByteReader in(saved.bytes());
    two.load(in);
    EXPECT_EQ(in.left(), 0u);
    const std::vector<Segment> a = played(one, weights, 40), b = played(two, weights, 40);
    ByteWriter after_one, after_two;
    for (const Segment& s : a) s.save(after_one);
    for (const Segment& s : b) s.save(after_two);
    one.save(after_one);
    two.save(after_two);
    EXPECT_TRUE(after_one.bytes() == after_two.bytes()) << moment;
  }
}

TEST_F(Groups, ADamagedGroupIsRefused) {
  const Plan p = plan();
  OpenGroup group;
  group.returns = {0, 1, 0, HUGE_VAL};
  for (const std::size_t episodes : {std::size_t{4}, std::size_t{3}}) {
    ByteWriter out;
    group.returns.resize(episodes);
    if (episodes == 3) group.returns[1] = std::nan("");
    group.save(out);
    ByteReader in(out.bytes());
    EXPECT_NE(message_of([&] { OpenGroup().load(in, 4, 4, p.transition()); }).find("open group is damaged"),
              std::string::npos);
  }
}

TEST_F(Groups, ATaskWithoutATimeLimitIsRefused) {
  loaded_.config.env.id = "Endless-v0";
  EXPECT_NE(message_of([&] { plan(); }).find("it has no time limit"), std::string::npos);
  loaded_.config.env.time_limit = 9;
  EXPECT_EQ(plan().env.time_limit, 9);
}

// A group with a number that is not finite is dropped, and the environment goes on with another start.
TEST_F(Groups, AFaultDropsTheOpenGroupAsyncToo) {
  loaded_.config.learner.updates = 200;
  for (const RunMode mode : {RunMode::kLockstep, RunMode::kAsync}) {
    bad_period = 53;
    loaded_.config.run.mode = mode;
    const RunSummary s = run(word_of(mode));
    EXPECT_EQ(s.ended, "finished");
    EXPECT_GT(s.rejected_segments, 2U);
    EXPECT_EQ(s.faults, (FaultCounts{{"observation_not_finite", s.rejected_segments}}));
  }
}

TEST_F(Groups, ARunGoesOnWithTheSameBytesWhereverItStopped) {
  loaded_.config.advantage.filter_groups = true;
  const RunSummary alone = run("alone");
  loaded_.config.run.threads = 2;
  EXPECT_EQ(run("threads").replay_fingerprint, alone.replay_fingerprint);
  loaded_.config.run.threads = 1;
  for (const std::int64_t updates : {0, 7, 31}) {  // 0: during the warm-up
    const std::string name = fmt::format("stopped-{}", updates);
    hooks_.progress = [&](const Progress& p) { stop_ = p.update >= updates; };
    EXPECT_EQ(run(name).ended, "interrupted");
    hooks_.progress = {};
    stop_ = false;
    const RunSummary s = go_on(name);
    EXPECT_EQ(s.replay_fingerprint, alone.replay_fingerprint);
    EXPECT_EQ(s.weights_fingerprint, alone.weights_fingerprint);
    for (const char* log : {"metrics.jsonl", "episodes.jsonl"}) EXPECT_EQ(file(name, log), file("alone", log)) << log;
  }
}

// The first update waits for the first group that teaches anything, for as long as the run was to be.
TEST_F(Groups, ARunWithoutAnyVarianceEndsByNameAsyncToo) {
  hopeless = true;
  loaded_.config.advantage.filter_groups = true;
  for (const RunMode mode : {RunMode::kLockstep, RunMode::kAsync}) {
    loaded_.config.run.mode = mode;
    const std::string why = message_of<RunError>([&] { run(word_of(mode)); });
    EXPECT_NE(why.find("the replay is empty after "), std::string::npos) << why;
    EXPECT_NE(why.find("groups of advantage.group_size = 4 episodes"), std::string::npos) << why;
    EXPECT_NE(why.find("without variance"), std::string::npos) << why;
  }
}

TEST_F(Groups, TheFirstUpdateWaitsForTheFirstGroupAsyncToo) {
  loaded_.config.advantage.group_size = 64;  // later than the warm-up ends
  loaded_.config.learner.updates = 300;
  for (const RunMode mode : {RunMode::kLockstep, RunMode::kAsync}) {
    loaded_.config.run.mode = mode;
    const RunSummary s = run(word_of(mode));
    EXPECT_EQ(s.ended, "finished");
    EXPECT_GE(s.env_steps, 64 * 6);
  }
}

// From a success in nine episodes of chance to nearly all, with a reward at the end of an episode alone.
TEST_F(Groups, ASparseTaskIsLearned) {
  Config& c = loaded_.config;
  c.advantage.group_size = 8;
  c.advantage.filter_groups = true;
  c.policy.hidden = {32};
  c.learner.updates = 600;
  c.learner.policy_lr = 3e-3;
  c.learner.batch_size = 256;
  c.staleness.regime = Regime::kCustom;
  c.staleness.window = 20;
  c.staleness.env_steps_per_update = 48;
  for (const std::int64_t seed : {1, 2, 3}) {
    c.run.seed = seed;
    EXPECT_GT(run(fmt::format("sparse-{}", seed)).eval_return.mean, 0.9);
  }
}

}  // namespace
}  // namespace gipo
