#include "gipo/policy/distribution.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gipo/core/random.h"

namespace gipo {
namespace {

const DistributionSpec kHeads{{2, 3}};
const DistributionSpec kGaussian{{0, 0}};

// One state, one action.
template <class T>
void evaluate(const DistributionSpec& spec, const DistributionView<T>& view, const T* action, T* log_prob, T* entropy) {
  EvaluatedDistribution<T> pi(spec, 1);
  pi.evaluate(view, 1);
  pi.log_prob(action, log_prob);
  pi.entropy(entropy);
}

double divergence(const DistributionSpec& spec, const DistributionView<double>& other,
                  const DistributionView<double>& view) {
  EvaluatedDistribution<double> q(spec, 1), p(spec, 1);
  q.evaluate(other, 1);
  p.evaluate(view, 1);
  double kl;
  p.kl_divergence(q, &kl);
  return kl;
}

TEST(Distribution, CategoricalProbabilitiesSumToOneInEveryHead) {
  const std::vector<double> logits = {0.3, -1.2, 2.0, 800.0, -800.0};
  double sums[2] = {0, 0};
  for (int a = 0; a < 2; ++a) {
    for (int b = 0; b < 3; ++b) {
      const double action[2] = {double(a), double(b)};
      double log_prob[2], entropy;
      evaluate<double>(kHeads, {logits.data(), {}}, action, log_prob, &entropy);
      if (b == 0) sums[0] += std::exp(log_prob[0]);
      if (a == 0) sums[1] += std::exp(log_prob[1]);
      EXPECT_TRUE(std::isfinite(entropy));
    }
  }
  EXPECT_NEAR(sums[0], 1, 1e-12);
  EXPECT_NEAR(sums[1], 1, 1e-12);
}

TEST(Distribution, CategoricalEntropyOfUniformIsLogOfChoices) {
  const std::vector<double> logits(5, 1.7), action = {0, 0};
  double log_prob[2], entropy;
  evaluate<double>(kHeads, {logits.data(), {}}, action.data(), log_prob, &entropy);
  EXPECT_NEAR(entropy, std::log(2) + std::log(3), 1e-12);
}

TEST(Distribution, SamplesHaveTheProbabilitiesTheyReport) {
  const std::vector<float> logits = {0.5f, -0.5f, 1.0f, 0.0f, -1.0f};
  RandomStream random(5);
  std::vector<double> counts(3), claimed(3);
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    float action[2], log_prob[2];
    sample_action<float>(kHeads, {logits.data(), {}}, 0, random, action, log_prob);
    const auto k = static_cast<std::size_t>(action[1]);
    counts[k] += 1.0 / kDraws;
    claimed[k] = std::exp(log_prob[1]);
  }
  for (int k = 0; k < 3; ++k) EXPECT_NEAR(counts[k], claimed[k], 0.015);
}

TEST(Distribution, GaussianSampleReportsTheLogProbOfItsAction) {
  const std::vector<float> mean = {0.4f, -2.0f}, log_std = {-0.7f, 0.3f};
  RandomStream random(6);
  double sum = 0, squares = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    float action[2], log_prob[2], again[2], entropy;
    sample_action<float>(kGaussian, {mean.data(), log_std}, 0, random, action, log_prob);
    evaluate<float>(kGaussian, {mean.data(), log_std}, action, again, &entropy);
    ASSERT_NEAR(log_prob[0], again[0], 1e-4);
    ASSERT_NEAR(log_prob[1], again[1], 1e-4);
    sum += action[0];
    squares += (action[0] - 0.4) * (action[0] - 0.4);
  }
  EXPECT_NEAR(sum / kDraws, 0.4, 0.02);
  EXPECT_NEAR(std::sqrt(squares / kDraws), std::exp(-0.7), 0.02);
}

TEST(Distribution, LastingNoiseHasItsCorrelationAndEachActionItsOwnDistribution) {
  const std::vector<float> mean = {0.0f, 0.0f}, log_std = {0.0f, -0.5f};
  RandomStream random(7);
  std::vector<float> last = {0, 0};
  for (float& v : last) v = static_cast<float>(random.normal());
  constexpr int kSteps = 40000;
  std::vector<double> seen;
  double squares = 0, one_on = 0, two_on = 0;
  for (int i = 0; i < kSteps; ++i) {
    float action[2], log_prob[2], again[2], entropy;
    sample_action<float>(kGaussian, {mean.data(), log_std}, 0, random, action, log_prob, nullptr, {last, 0.6});
    evaluate<float>(kGaussian, {mean.data(), log_std}, action, again, &entropy);
    ASSERT_NEAR(log_prob[1], again[1], 1e-4);
    seen.push_back(action[0]);
    squares += seen[i] * seen[i] / kSteps;
    if (i > 0) one_on += seen[i] * seen[i - 1] / kSteps;
    if (i > 1) two_on += seen[i] * seen[i - 2] / kSteps;
  }
  EXPECT_NEAR(squares, 1, 0.04);
  EXPECT_NEAR(one_on, 0.6, 0.04);
  EXPECT_NEAR(two_on, 0.36, 0.04);
}

// KL against its definition: the sum over all actions, or an integral.
TEST(Distribution, KlDivergenceMatchesItsDefinition) {
  const std::vector<double> p = {0.3, -1.2, 2.0, 0.1, -0.4}, q = {-0.3, 0.2, 1.0, 1.1, 0.4};
  double kl, expected = 0;
  kl = divergence(kHeads, {q.data(), {}}, {p.data(), {}});
  for (int a = 0; a < 2; ++a) {
    for (int b = 0; b < 3; ++b) {
      const double action[2] = {double(a), double(b)};
      double lp[2], lq[2], h;
      evaluate<double>(kHeads, {p.data(), {}}, action, lp, &h);
      evaluate<double>(kHeads, {q.data(), {}}, action, lq, &h);
      expected += std::exp(lq[0] + lq[1]) * (lq[0] + lq[1] - lp[0] - lp[1]);
    }
  }
  EXPECT_NEAR(kl, expected, 1e-12);

  const DistributionSpec one{{0}};
  const std::vector<double> mp = {0.5}, mq = {-0.2}, sp = {0.2}, sq = {-0.4};
  kl = divergence(one, {mq.data(), sq}, {mp.data(), sp});
  expected = 0;
  for (double x = -12; x < 12; x += 1e-3) {
    double lp, lq, h;
    evaluate<double>(one, {mp.data(), sp}, &x, &lp, &h);
    evaluate<double>(one, {mq.data(), sq}, &x, &lq, &h);
    expected += 1e-3 * std::exp(lq) * (lq - lp);
  }
  EXPECT_NEAR(kl, expected, 1e-6);
}

TEST(Distribution, ModeIsTheLikeliestAction) {
  const std::vector<float> logits = {0.5f, 0.6f, 1.0f, 3.0f, -1.0f}, mean = {0.4f, -2.0f}, log_std = {1, 1};
  float action[2];
  mode_action<float>(kHeads, {logits.data(), {}}, 0, action);
  EXPECT_EQ(action[0], 1);
  EXPECT_EQ(action[1], 1);
  mode_action<float>(kGaussian, {mean.data(), log_std}, 0, action);
  EXPECT_EQ(action[0], 0.4f);
}

}  // namespace
}  // namespace gipo
