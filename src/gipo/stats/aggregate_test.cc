#include "gipo/stats/aggregate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/stats/bootstrap.h"

namespace gipo {
namespace {

ScoreTable random_table(std::size_t methods, std::size_t tasks, std::size_t runs, std::uint64_t seed) {
  RandomStream random(seed);
  ScoreTable table;
  for (std::size_t t = 0; t < tasks; ++t) table.tasks.push_back("task " + std::to_string(t));
  for (std::size_t m = 0; m < methods; ++m) {
    table.methods.push_back("method " + std::to_string(m));
    table.scores.emplace_back(tasks);
    for (auto& scores : table.scores.back()) {
      for (std::size_t r = 0; r < runs; ++r) scores.push_back(random.uniform() + 0.05 * static_cast<double>(m));
    }
  }
  return table;
}

TEST(Aggregate, IqmDropsAQuarterAtEachEnd) {
  // Nine scores: floor(9/4) = 2 dropped at each end, whichever task they are of.
  EXPECT_DOUBLE_EQ(aggregates({{100, 1, 2, 3}, {4, 5, -100, 7, 6}}).iqm, 4.0);
  EXPECT_DOUBLE_EQ(aggregates({{3}}).iqm, 3.0);
  EXPECT_DOUBLE_EQ(aggregates({{1, 2, 9}}).iqm, 4.0);  // fewer than four: nothing is dropped
}

TEST(Aggregate, MedianAndMeanAreOfTheTasksMeans) {
  const Aggregates a = aggregates({{0, 2}, {10}, {3, 4, 5}});
  EXPECT_DOUBLE_EQ(a.mean, 5.0);
  EXPECT_DOUBLE_EQ(a.median, 4.0);
}

TEST(Aggregate, OptimalityGapCountsWhatIsMissingAlone) {
  EXPECT_DOUBLE_EQ(aggregates({{0.5, 3.0}, {1.0, 0.0}}).optimality_gap, 0.375);
  EXPECT_DOUBLE_EQ(aggregates({{0.5, 3.0}}, 2).optimality_gap, 0.75);
}

TEST(Aggregate, ProfileIsTheFractionStrictlyAbove) {
  const std::vector<double> taus = {-1, 0, 0.5, 1, 2};
  EXPECT_EQ(profile({{0, 1}, {0.5, 1}}, taus), (std::vector<double>{1, 0.75, 0.5, 0, 0}));
}

TEST(Aggregate, ProbabilityOfImprovementCountsTiesHalf) {
  EXPECT_DOUBLE_EQ(probability_of_improvement({{1, 2, 3}}, {{0}}), 1);
  EXPECT_DOUBLE_EQ(probability_of_improvement({{1, 2}}, {{1, 2}}), 0.5);
  EXPECT_DOUBLE_EQ(probability_of_improvement({{1, 2}, {0}}, {{2}, {1, 1, 1}}), 0.125);
  const TaskScores x = {{0.1, 0.4, 0.4}, {3}}, y = {{0.4, 0.2}, {3, 2, 5}};
  EXPECT_DOUBLE_EQ(probability_of_improvement(x, y) + probability_of_improvement(y, x), 1);
}

// Counts are a shorthand: the aggregates of a resampled set are those of the set written out.
TEST(Aggregate, CountsStandForRepeatedScores) {
  const TaskScores scores = {{0.3, 0.9, 0.1, 0.9}, {2.0, -1.0, 0.4}};
  const std::vector<std::uint32_t> counts = {2, 0, 1, 1, 0, 3, 0};
  const TaskScores written = {{0.3, 0.3, 0.1, 0.9}, {-1.0, -1.0, -1.0}};
  const Aggregates a = RankedScores(scores).aggregates(counts), b = aggregates(written);
  EXPECT_DOUBLE_EQ(a.iqm, b.iqm);
  EXPECT_DOUBLE_EQ(a.median, b.median);
  EXPECT_DOUBLE_EQ(a.mean, b.mean);
  EXPECT_DOUBLE_EQ(a.optimality_gap, b.optimality_gap);
  std::vector<double> taus = {0, 0.2, 0.9}, fractions(3);
  RankedScores(scores).profile(counts, taus, fractions);
  EXPECT_EQ(fractions, profile(written, taus));
  const TaskScores other = {{0.3, 0.5}, {-1.0, 0.0}};
  const std::vector<std::uint32_t> once(4, 1);
  EXPECT_DOUBLE_EQ(RankedPair(scores, other).improvement(counts, once), probability_of_improvement(written, other));
  EXPECT_DOUBLE_EQ(RankedPair(other, scores).improvement(once, counts), probability_of_improvement(other, written));
}

TEST(Scores, NormalisedByTheTwoScoresOfEachTask) {
  const ScoreTable table = {{"a"}, {"t", "u"}, {{{5, 15}, {-2}}}};
  const std::vector<ScoreScale> scales = {{5, 10}, {0, -1}};
  EXPECT_EQ(normalised(table, scales).scores[0], (TaskScores{{0, 2}, {2}}));
  EXPECT_EQ(min_max_scales(table)[0].zero, 5);
  EXPECT_EQ(min_max_scales(table)[0].one, 15);
  EXPECT_THROW(normalised(table, min_max_scales(table)), Error);  // one score alone has no width
}

TEST(Scores, DeviationIsThatOfASample) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(mean_std(values).mean, 2.5);
  EXPECT_DOUBLE_EQ(mean_std(values).std, std::sqrt(5.0 / 3));
  EXPECT_TRUE(std::isnan(mean_std(std::vector<double>{7}).std));
}

TEST(Bootstrap, IntervalOfAMeanIsThatOfTheNormalApproximation) {
  ScoreTable table = random_table(1, 2, 200, 3);
  const Estimate mean = estimate(table, {}).methods[0].mean;
  double variance = 0;
  for (const auto& runs : table.scores[0]) {
    const double std = mean_std(runs).std;
    variance += std * std * 199 / 200 / 200 / 4;  // the bootstrap's own: over n, not n - 1
  }
  const double half = 1.959964 * std::sqrt(variance);
  EXPECT_NEAR(mean.low, mean.value - half, 0.02 * half);
  EXPECT_NEAR(mean.high, mean.value + half, 0.02 * half);
}

TEST(Bootstrap, SameSeedSameBytesAndOthersDoNotMatter) {
  ScoreTable table = random_table(3, 4, 5, 1);
  BootstrapOptions options;
  options.repetitions = 1000;
  options.taus = {0.2, 0.5};
  const Estimates first = estimate(table, options), second = estimate(table, options);
  EXPECT_EQ(first.methods[2].iqm.low, second.methods[2].iqm.low);
  EXPECT_EQ(first.improvements[1].probability.high, second.improvements[1].probability.high);
  table.methods.pop_back();
  table.scores.pop_back();
  EXPECT_EQ(estimate(table, options).methods[1].iqm.high, first.methods[1].iqm.high);
  options.seed = 2;
  EXPECT_NE(estimate(table, options).methods[1].iqm.high, first.methods[1].iqm.high);
}

TEST(Bootstrap, EveryPairOnceAndValuesInsideTheirIntervals) {
  BootstrapOptions options;
  options.repetitions = 500;
  options.taus = {0.5};
  const Estimates e = estimate(random_table(4, 3, 6, 2), options);
  EXPECT_EQ(e.improvements.size(), 6u);
  for (const MethodEstimates& m : e.methods) {
    for (const Estimate& x : {m.iqm, m.median, m.mean, m.optimality_gap, m.profile.at(0)}) {
      EXPECT_LE(x.low, x.value);
      EXPECT_GE(x.high, x.value);
      EXPECT_LT(x.low, x.high);
    }
  }
}

// A width of zero where all runs agree.
TEST(Bootstrap, EqualRunsHaveNoInterval) {
  const ScoreTable table = {{"a"}, {"t"}, {{{0.5, 0.5, 0.5}}}};
  const Estimate iqm = estimate(table, {}).methods[0].iqm;
  EXPECT_EQ(iqm.low, 0.5);
  EXPECT_EQ(iqm.high, 0.5);
}

}  // namespace
}  // namespace gipo
