#include "gipo/study/halving.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace gipo {
namespace {

using Indices = std::vector<std::size_t>;

// Plays all rounds.
Halving halved(std::size_t candidates, std::size_t tasks, Indices seeds, double keep, const Halving::ScoreOf& score) {
  Halving h(candidates, tasks, std::move(seeds), keep);
  while (!h.done()) h.take(score);
  return h;
}

TEST(Halving, SeedsDoubleAndTheLastRoundHasAll) {
  EXPECT_EQ(round_seeds(2, 8), (Indices{2, 4, 8}));
  EXPECT_EQ(round_seeds(3, 8), (Indices{3, 6, 8}));
  EXPECT_EQ(round_seeds(5, 5), (Indices{5}));
  EXPECT_EQ(round_seeds(1, 1), (Indices{1}));
}

TEST(Halving, AShareGoesOnAndEveryRoundDecidesSomething) {
  EXPECT_EQ(going_on(12, 0.34), 4u);
  EXPECT_EQ(going_on(4, 0.34), 2u);
  EXPECT_EQ(going_on(2, 0.34), 2u);
  EXPECT_EQ(going_on(1, 0.34), 1u);
  EXPECT_EQ(going_on(3, 0.99), 3u);
}

TEST(Halving, TheBestByAllItsSeedsWins) {
  std::set<std::tuple<std::size_t, std::size_t, std::size_t>> asked;
  // Candidate 7 is best on the first two seeds alone, 5 on all of them.
  const Halving h = halved(12, 3, {2, 4, 8}, 0.34, [&](std::size_t c, std::size_t t, std::size_t s) {
    asked.insert({c, t, s});
    if (c == 7) return s < 2 ? 0.95 : 0.1;
    return c == 5 ? 0.9 : 0.05 * static_cast<double>(c);
  });
  EXPECT_EQ(h.chosen(), 5u);
  EXPECT_EQ(h.runner_up(), 11u);
  EXPECT_DOUBLE_EQ(h.standings()[5].mean, 0.9);
  EXPECT_DOUBLE_EQ(h.standings()[11].mean, 0.55);
  EXPECT_EQ(h.standings()[5].rounds, 3u);
  EXPECT_FALSE(h.standings()[5].dropped);
  EXPECT_EQ(h.standings()[7].rounds, 2u) << "5, 7, 10 and 11 went on, and 7 fell behind";
  EXPECT_TRUE(h.standings()[7].dropped);
  EXPECT_EQ(h.standings()[0].rounds, 1u);
  EXPECT_EQ(asked.size(), 3u * (12 * 2 + 4 * 2 + 2 * 4)) << "no more runs than the rounds have";
}

TEST(Halving, TasksCountAlikeWhateverTheirRuns) {
  const Halving h = halved(2, 2, {2}, 0.5, [](std::size_t c, std::size_t t, std::size_t s) {
    return c == 0 ? (t == 0 ? 1.0 : 0.0) : 0.4 + 0.1 * static_cast<double>(s);
  });
  EXPECT_EQ(h.chosen(), 0u);
  EXPECT_EQ(h.standings()[0].tasks, (std::vector<double>{1.0, 0.0}));
  EXPECT_DOUBLE_EQ(h.standings()[1].mean, 0.45);
}

TEST(Halving, OfEqualScoresTheEarlierWins) {
  const Halving h = halved(6, 1, {1, 2, 4}, 0.5, [](auto...) { return 0.5; });
  EXPECT_EQ(h.chosen(), 0u);
  EXPECT_EQ(h.runner_up(), 1u);
}

TEST(Halving, AFailedRunIsTheWorstOfItsTask) {
  const auto score = [](double of_others) {
    return [of_others](std::size_t c, std::size_t, std::size_t s) -> std::optional<double> {
      if (c == 0) return s == 0 ? std::optional(0.8) : std::nullopt;
      return of_others;
    };
  };
  // Not below random play where nobody is; as low as the lowest otherwise.
  EXPECT_DOUBLE_EQ(halved(2, 1, {2}, 0.5, score(0.3)).standings()[0].mean, 0.4);
  EXPECT_DOUBLE_EQ(halved(2, 1, {2}, 0.5, score(-2.0)).standings()[0].mean, -0.6);
  EXPECT_EQ(halved(2, 1, {2}, 0.5, score(0.5)).chosen(), 1u);
  EXPECT_EQ(halved(2, 1, {2}, 0.5, score(0.5)).standings()[0].failed, 1u);
}

TEST(Halving, OneCandidateIsChosenWithoutARunnerUp) {
  const Halving h = halved(1, 1, {1, 2}, 0.5, [](auto...) { return -0.25; });
  EXPECT_EQ(h.chosen(), 0u);
  EXPECT_FALSE(h.runner_up());
  EXPECT_DOUBLE_EQ(h.standings()[0].mean, -0.25);
}

}  // namespace
}  // namespace gipo
