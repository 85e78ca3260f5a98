// Ranks are threads here, with connections over loopback as between processes.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <thread>

#include "gipo/bench/made_up.h"
#include "gipo/core/random.h"
#include "gipo/core/thread_pool.h"
#include "gipo/io/bytes.h"
#include "gipo/learner/ranks.h"
#include "gipo/policy/torch_policy.h"

namespace gipo {
namespace {

using NamedFigures = std::vector<std::pair<std::string, double>>;

constexpr std::size_t kRows = 131;  // that no number of ranks divides

RankPlace place_of(const RankHost& host, int rank, int ranks) {
  RankPlace place;
  place.rank = rank;
  place.ranks = ranks;
  place.port = host.port();
  place.hosted = true;
  return place;
}

// Rank 0 does `first`, the others `rest`, each in a thread of its own.
void with_ranks(int ranks, const std::function<void(std::shared_ptr<RankGroup>)>& first,
                const std::function<void(RankGroup&)>& rest = serve_rank) {
  const std::unique_ptr<RankHost> host = host_ranks();
  std::vector<std::jthread> others;
  for (int r = 1; r < ranks; ++r) {
    others.emplace_back([&, r] { rest(*join_ranks(place_of(*host, r, ranks))); });
  }
  first(join_ranks(place_of(*host, 0, ranks)));
}

LearnerSetup setup_for(int ranks, const ActionSpace& action, bool masked) {
  PolicyOptions policy;
  policy.hidden = {24, 20};
  LearnerSetup setup = made_up_setup(7, action, policy, kRows);
  if (masked) add_mask(setup.model);
  setup.learner.backend = "torch";
  setup.learner.ranks = ranks;
  setup.learner.proximal_coef = 0.1;
  setup.learner.policy_every = 2;
  setup.surrogate.centre = Centre::kProximal;
  return setup;
}

struct Ended {
  Weights weights;
  UpdateStats stats;
  NamedFigures figures;
  std::vector<std::pair<std::string, std::vector<double>>> gradients;
  std::string state;
};

Ended learn(LearnerSetup setup, const std::shared_ptr<RankGroup>& group, int updates, const std::string& from = {}) {
  setup.ranks = group;
  ThreadPool pool(2);
  const auto learner = make_learner(setup, RandomStream(3), pool);
  if (!from.empty()) {
    ByteReader in(from);
    learner->load(in);
  }
  const Batch batch = made_up_batch(kRows, setup.model);
  for (int i = 0; i < updates; ++i) learner->update(batch, {0, i == updates - 1});
  Ended ended;
  learner->copy_weights(ended.weights);
  ended.stats = learner->figures();
  ended.figures = learner->diagnostics().figures();
  ended.gradients = learner->gradients();
  ended.state = bytes_of([&](ByteWriter& out) { learner->save(out); });
  return ended;
}

Ended learn_with(const LearnerSetup& setup, int updates, const std::string& from = {}) {
  Ended ended;
  const auto ranks = static_cast<int>(setup.learner.ranks);
  if (ranks == 1) return learn(setup, nullptr, updates, from);
  with_ranks(ranks, [&](const std::shared_ptr<RankGroup>& group) { ended = learn(setup, group, updates, from); });
  return ended;
}

template <class Values>
double difference(const Values& ours, const Values& wanted) {
  double squares = 0, size = 0;
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    squares += std::pow(static_cast<double>(ours[k] - wanted[k]), 2);
    size += std::pow(static_cast<double>(wanted[k]), 2);
  }
  return std::sqrt(squares / size);
}

TEST(Ranks, AreOneLearnerForEveryKindOfAction) {
  const ActionSpace composed{ActionSpace::Kind::kComposed, {3, 0, 4}, {0, -2, 0}, {0, 2, 0}};
  double most = 0;
  struct Case {
    ActionSpace action;
    bool masked;
    std::vector<int> ranks;
  };
  for (const auto& [action, masked, numbers] : {Case{ActionSpace::discrete(5), false, {2, 4}},
                                                {ActionSpace::box({-1, -2, 0}, {1, 2, 3}), false, {2}},
                                                {composed, true, {3}}}) {
    const Ended alone = learn_with(setup_for(1, action, masked), 50);
    for (const int ranks : numbers) {
      const Ended ours = learn_with(setup_for(ranks, action, masked), 50);
      for (const double d : {difference(ours.weights.policy, alone.weights.policy),
                             difference(ours.weights.critic, alone.weights.critic)}) {
        EXPECT_LT(d, 1e-5) << ranks;
        most = std::max(most, d);
      }
      ASSERT_EQ(ours.gradients.size(), alone.gradients.size());
      for (std::size_t i = 0; i < ours.gradients.size(); ++i) {
        EXPECT_EQ(ours.gradients[i].first, alone.gradients[i].first);
        EXPECT_LT(difference(ours.gradients[i].second, alone.gradients[i].second), 1e-3) << ours.gradients[i].first;
      }
      NamedFigures figures, wanted;
      ours.stats.append_to(figures);
      alone.stats.append_to(wanted);
      figures.insert(figures.end(), ours.figures.begin(), ours.figures.end());
      wanted.insert(wanted.end(), alone.figures.begin(), alone.figures.end());
      ASSERT_EQ(figures.size(), wanted.size());
      for (std::size_t i = 0; i < figures.size(); ++i) {
        if (std::isnan(wanted[i].second) && std::isnan(figures[i].second)) continue;  // there were no such samples
        EXPECT_NEAR(figures[i].second, wanted[i].second, 1e-3 * std::max(0.01, std::abs(wanted[i].second)))
            << figures[i].first;
      }
    }
  }
  EXPECT_GT(most, 0) << "sums in another order cannot agree to the last bit";
  RecordProperty("largest", std::to_string(most));
}

TEST(Ranks, MakeTheSameBytesEachTime) {
  const LearnerSetup setup = setup_for(3, ActionSpace::discrete(5), false);
  EXPECT_EQ(learn_with(setup, 5).state, learn_with(setup, 5).state);
}

TEST(Ranks, ReadAStateThatAnyNumberOfRanksWrote) {
  const ActionSpace action = ActionSpace::discrete(5);
  const std::string state = learn_with(setup_for(2, action, false), 10).state;
  for (const int ranks : {1, 2, 3}) {
    const LearnerSetup setup = setup_for(ranks, action, false);
    EXPECT_EQ(learn_with(setup, 0, state).state, state) << ranks;
  }
  EXPECT_EQ(learn_with(setup_for(2, action, false), 10, state).state,
            learn_with(setup_for(2, action, false), 20).state);
  EXPECT_LT(difference(learn_with(setup_for(3, action, false), 10, state).weights.policy,
                       learn_with(setup_for(1, action, false), 20).weights.policy),
            1e-5);
}

TEST(Ranks, AnUpdateThatIsNotFiniteIsSkippedByAll) {
  const LearnerSetup setup = setup_for(2, ActionSpace::discrete(5), false);
  with_ranks(2, [&](const std::shared_ptr<RankGroup>& group) {
    LearnerSetup own = setup;
    own.ranks = group;
    ThreadPool pool(1);
    const auto learner = make_learner(own, RandomStream(3), pool);
    Batch batch = made_up_batch(kRows, setup.model);
    learner->update(batch, {});
    Weights before, after;
    learner->copy_weights(before);
    batch.observation()[0] = std::nanf("");  // rank 0's share alone
    EXPECT_TRUE(learner->update(batch, {}).skipped);
    learner->copy_weights(after);
    EXPECT_EQ(before.policy, after.policy);
    EXPECT_FALSE(learner->update(made_up_batch(kRows, setup.model), {}).skipped);
  });
}

TEST(Ranks, SharesAreSummedInOrderAndSpread) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{1 << 22} + 5}) {
    const auto work = [size](RankGroup& group) {
      std::vector<float> all(size);
      for (std::size_t i = 0; i < size; ++i) all[i] = static_cast<float>(group.rank() + 1) * static_cast<float>(i % 97);
      const auto [begin, end] = share_of(size, group.rank(), group.size());
      std::vector<float> own(end - begin);
      group.sum_shares({all.data(), size}, own.data());
      std::copy(own.begin(), own.end(), all.begin() + static_cast<std::ptrdiff_t>(begin));
      group.spread_shares({all.data(), size});
      for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(all[i], 6 * static_cast<float>(i % 97)) << i;
      all[size - 1] = static_cast<float>(group.rank());
      group.spread_first({all.data(), size});
      EXPECT_EQ(all[size - 1], 0);
      double each[2] = {1, 0.5 * group.rank()};
      group.sum(each);
      EXPECT_EQ(each[0], 3);
      EXPECT_EQ(each[1], 1.5);
    };
    with_ranks(
        3, [&](const std::shared_ptr<RankGroup>& group) { work(*group); }, work);
  }
}

TEST(Ranks, HalvesAreSummedInFloatWhereTheyLie) {
  const auto work = [](RankGroup& group) {
    std::vector<std::uint16_t> all(40, group.rank() == 0 ? 0x3f80 : 0x3b80);  // 1 and 2^-8, of which two move a one
    const auto [begin, end] = share_of(all.size(), group.rank(), group.size());
    group.sum_shares({all.data(), all.size(), true}, all.data() + begin);
    group.spread_shares({all.data(), all.size(), true});
    EXPECT_EQ(all, std::vector<std::uint16_t>(40, 0x3f81));  // 1 + 2^-7
  };
  with_ranks(
      3, [&](const std::shared_ptr<RankGroup>& group) { work(*group); }, work);
}

// Two ranks on one device: what they exchange goes through the host.
TEST(Ranks, OnADeviceAreOneLearner) {
  if (torch_cuda_devices().empty()) GTEST_SKIP() << "no CUDA device, or built without CUDA";
  ::setenv("GIPO_RANKS_SHARE_DEVICES", "1", 1);
  for (const ActionSpace& action : {ActionSpace::discrete(5), ActionSpace::box({-1, -2, 0}, {1, 2, 3})}) {
    LearnerSetup setup = setup_for(1, action, false);
    const Ended alone = learn_with(setup, 50);
    setup.learner.ranks = 2;
    setup.learner.device = "cuda";
    setup.learner.products = ProductKind::kFloat;
    const Ended ours = learn_with(setup, 50);
    EXPECT_LT(difference(ours.weights.policy, alone.weights.policy), 1e-4);
    EXPECT_LT(difference(ours.weights.critic, alone.weights.critic), 1e-4);
    EXPECT_EQ(learn_with(setup, 0, ours.state).state, ours.state);
    EXPECT_EQ(learn_with(setup, 50).state, ours.state);
  }
}

TEST(Ranks, TheLossOfOneEndsTheOthersAtOnce) {
  const LearnerSetup setup = setup_for(3, ActionSpace::discrete(5), false);
  with_ranks(
      3,
      [&](const std::shared_ptr<RankGroup>& group) {
        LearnerSetup own = setup;
        own.ranks = group;
        ThreadPool pool(1);
        const auto learner = make_learner(own, RandomStream(3), pool);
        const Batch batch = made_up_batch(kRows, setup.model);
        EXPECT_THROW(for (int i = 0; i < 100; ++i) learner->update(batch, {}), RanksLost);
        EXPECT_THROW(learner->update(batch, {}), RanksLost);  // without waiting for anybody
      },
      [](RankGroup& group) {
        if (group.rank() == 2) {  // takes what it is to set up with, and is gone
          group.receive(0);
          return;
        }
        EXPECT_THROW(serve_rank(group), RanksLost);
      });
}

TEST(Ranks, AnAddressThatDoesNotAnswerIsNamed) {
  RankPlace place;
  place.rank = 1;
  place.ranks = 2;
  place.port = 1;  // nobody's
  place.wait_seconds = 1;
  const auto complaint = [&] {
    try {
      join_ranks(place);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_TRUE(complaint().starts_with(
      "MASTER_ADDR = \"127.0.0.1\", MASTER_PORT = 1: rank 1 of 2 found nobody who answers there"))
      << complaint();
  const std::unique_ptr<RankHost> host = host_ranks();
  place.port = host->port();
  place.hosted = true;
  EXPECT_TRUE(complaint().ends_with("rank 0 of 2 has not come within 1 s")) << complaint();
}

TEST(Ranks, WaitForAllOthersTogetherNoLongerThanTheyWereTold) {
  const auto seconds_until_refused = [](const RankPlace& place) {
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_THROW(join_ranks(place), Error);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  RankPlace nowhere;
  nowhere.rank = 1;
  nowhere.ranks = 2;
  nowhere.port = 1;  // nobody's
  nowhere.wait_seconds = 4;
  const double alone = seconds_until_refused(nowhere);
  EXPECT_GE(alone, 4);
  EXPECT_LT(alone, 6.5);
  // The second comes late and the third never.
  const std::unique_ptr<RankHost> host = host_ranks();
  RankPlace first = place_of(*host, 0, 3), second = place_of(*host, 1, 3);
  first.wait_seconds = 4;
  second.wait_seconds = 1;
  const std::jthread late([&] {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    EXPECT_THROW(join_ranks(second), Error);
  });
  const double beside_a_late_one = seconds_until_refused(first);
  EXPECT_GE(beside_a_late_one, 3.9);
  EXPECT_LT(beside_a_late_one, 5.5);
}

TEST(Ranks, OptionsThatDoNotGoTogetherAreNamed) {
  LearnerOptions options;
  const auto complaint = [&] {
    try {
      check_ranks(options);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(complaint(), "");
  options.ranks = 4;
  EXPECT_EQ(complaint(), "learner.ranks = 4 needs learner.backend = \"torch\", and it is \"cpu\"");
  options.backend = "torch";
  EXPECT_EQ(complaint(), "");
  options.device = "cuda";
  EXPECT_EQ(complaint(), "");
  options.device = "cuda:1";
  EXPECT_EQ(complaint(),
            "learner.device = \"cuda:1\" is not accepted with learner.ranks = 4: each rank takes a device of its own; "
            "wanted \"cuda\", or \"cpu\"");
  options.device = "cpu";
  options.batch_size = 3;
  EXPECT_EQ(complaint(), "learner.ranks = 4 is not accepted: learner.batch_size = 3 has fewer transitions");
}

}  // namespace
}  // namespace gipo
