#include "gipo/objective/advantage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gipo/core/random.h"

namespace gipo {
namespace {

struct Segment {
  std::vector<double> reward, value, log_ratio;
  bool terminated = false;
  SegmentView<double> view() const { return {reward, value, terminated}; }
  std::size_t steps() const { return reward.size(); }
  // V(s_t), with nothing after a termination.
  double value_at(std::size_t t) const { return t == steps() && terminated ? 0 : value[t]; }
};

Segment random_segment(std::size_t steps, bool terminated, std::uint64_t seed) {
  RandomStream random(seed);
  Segment s;
  s.terminated = terminated;
  for (std::size_t t = 0; t < steps; ++t) {
    s.reward.push_back(random.normal());
    s.log_ratio.push_back(random.normal());
  }
  for (std::size_t t = 0; t <= steps; ++t) s.value.push_back(3 * random.normal());
  return s;
}

struct Result {
  std::vector<double> advantage, target;
};

Result run_gae(const Segment& s, double gamma, double lambda) {
  Result r{std::vector<double>(s.steps()), std::vector<double>(s.steps())};
  gae<double>(s.view(), gamma, lambda, r.advantage, r.target);
  return r;
}

Result run_vtrace(const Segment& s, const VtraceOptions& options) {
  Result r{std::vector<double>(s.steps()), std::vector<double>(s.steps())};
  vtrace<double>(s.view(), s.log_ratio, options, r.advantage, r.target);
  return r;
}

TEST(Advantage, GaeIsTheSumOfDiscountedDeltas) {
  for (const bool terminated : {false, true}) {
    const Segment s = random_segment(17, terminated, 3);
    const double gamma = 0.97, lambda = 0.8;
    const Result r = run_gae(s, gamma, lambda);
    for (std::size_t t = 0; t < s.steps(); ++t) {
      double sum = 0;
      for (std::size_t k = t; k < s.steps(); ++k) {
        const double delta = s.reward[k] + gamma * s.value_at(k + 1) - s.value[k];
        sum += std::pow(gamma * lambda, static_cast<double>(k - t)) * delta;
      }
      EXPECT_NEAR(r.advantage[t], sum, 1e-12);
      EXPECT_NEAR(r.target[t], sum + s.value[t], 1e-12);
    }
  }
}

TEST(Advantage, TruncationBootstraps) {
  const Segment s{{1}, {2, 10}, {0}, false};
  EXPECT_DOUBLE_EQ(run_gae(s, 0.5, 0.9).advantage[0], 1 + 0.5 * 10 - 2);
  EXPECT_DOUBLE_EQ(run_vtrace(s, {0.5, 0.9, 1, 1}).advantage[0], 1 + 0.5 * 10 - 2);
  EXPECT_DOUBLE_EQ(run_vtrace(s, {0.5, 0.9, 1, 1}).target[0], 1 + 0.5 * 10);
}

TEST(Advantage, TerminationDoesNot) {
  const Segment s{{1}, {2, 10}, {0}, true};
  EXPECT_DOUBLE_EQ(run_gae(s, 0.5, 0.9).advantage[0], 1 - 2);
  EXPECT_DOUBLE_EQ(run_vtrace(s, {0.5, 0.9, 1, 1}).advantage[0], 1 - 2);
  EXPECT_DOUBLE_EQ(run_vtrace(s, {0.5, 0.9, 1, 1}).target[0], 1);
}

// IMPALA, eq. 1: v_t = V_t + sum_k gamma^(k-t) (prod_{i<k} c_i) delta_k.
TEST(Advantage, VtraceIsTheSumOfProducts) {
  const VtraceOptions options{0.97, 0.9, 1.5, 0.7};
  for (const bool terminated : {false, true}) {
    const Segment s = random_segment(17, terminated, 4);
    const Result r = run_vtrace(s, options);
    std::vector<double> v(s.steps() + 1, s.value_at(s.steps()));
    for (std::size_t t = 0; t < s.steps(); ++t) {
      v[t] = s.value[t];
      double product = 1;
      for (std::size_t k = t; k < s.steps(); ++k) {
        const double rho = std::exp(s.log_ratio[k]);
        const double delta = s.reward[k] + options.gamma * s.value_at(k + 1) - s.value[k];
        v[t] += product * std::min(options.rho_bar, rho) * delta;
        product *= options.gamma * options.lambda * std::min(options.c_bar, rho);
      }
    }
    for (std::size_t t = 0; t < s.steps(); ++t) {
      EXPECT_NEAR(r.target[t], v[t], 1e-12);
      EXPECT_NEAR(r.advantage[t], s.reward[t] + options.gamma * v[t + 1] - s.value[t], 1e-12);
    }
  }
}

TEST(Advantage, OnPolicyVtraceWithoutDecayIsTheReturn) {
  Segment s = random_segment(9, false, 5);
  std::fill(s.log_ratio.begin(), s.log_ratio.end(), 0.0);
  const Result r = run_vtrace(s, {0.9, 1, 1, 1});
  double expected = s.value.back();
  for (std::size_t t = s.steps(); t-- > 0;) {
    expected = s.reward[t] + 0.9 * expected;
    EXPECT_NEAR(r.target[t], expected, 1e-12);
    EXPECT_NEAR(r.advantage[t], expected - s.value[t], 1e-12);
  }
}

TEST(Advantage, OnPolicyVtraceTargetIsGaeTarget) {
  for (const bool terminated : {false, true}) {
    Segment s = random_segment(20, terminated, 6);
    std::fill(s.log_ratio.begin(), s.log_ratio.end(), 0.0);
    const Result a = run_gae(s, 0.99, 0.6), b = run_vtrace(s, {0.99, 0.6, 1, 1});
    for (std::size_t t = 0; t < s.steps(); ++t) EXPECT_NEAR(a.target[t], b.target[t], 1e-12);
  }
}

TEST(Advantage, ExtremeLogRatiosStayFinite) {
  Segment s = random_segment(6, false, 7);
  s.log_ratio = {1e30, -1e30, 800, -800, std::numeric_limits<double>::max(), 0};
  const Result r = run_vtrace(s, {0.99, 0.95, 1e6, 1e6});
  for (std::size_t t = 0; t < s.steps(); ++t) {
    EXPECT_TRUE(std::isfinite(r.target[t]));
    EXPECT_TRUE(std::isfinite(r.advantage[t]));
  }
}

TEST(Advantage, FloatFollowsDouble) {
  const Segment s = random_segment(32, false, 8);
  const std::vector<float> reward(s.reward.begin(), s.reward.end()), value(s.value.begin(), s.value.end());
  const std::vector<float> log_ratio(s.log_ratio.begin(), s.log_ratio.end());
  std::vector<float> advantage(32), target(32);
  vtrace<float>({reward, value, false}, log_ratio, {0.99, 0.95, 1, 1}, advantage, target);
  const Result v = run_vtrace(s, {0.99, 0.95, 1, 1}), g = run_gae(s, 0.99, 0.95);
  for (std::size_t t = 0; t < 32; ++t) EXPECT_NEAR(advantage[t], v.advantage[t], 1e-4);
  for (std::size_t t = 0; t < 32; ++t) EXPECT_NEAR(target[t], v.target[t], 1e-4);
  gae<float>({reward, value, false}, 0.99f, 0.95f, advantage, target);
  for (std::size_t t = 0; t < 32; ++t) EXPECT_NEAR(advantage[t], g.advantage[t], 1e-4);
}

TEST(Advantage, NormaliseToMeanZeroDeviationOne) {
  std::vector<double> v = {1, 2, 3, 6};  // mean 3, squares 4 + 1 + 0 + 9
  normalise<double>(v);
  const double deviation = std::sqrt(14.0 / 4);
  EXPECT_NEAR(v[0], -2 / deviation, 1e-15);
  EXPECT_NEAR(v[1], -1 / deviation, 1e-15);
  EXPECT_NEAR(v[2], 0, 1e-15);
  EXPECT_NEAR(v[3], 3 / deviation, 1e-15);
}

TEST(Advantage, NormaliseLeavesZerosOfAConstant) {
  std::vector<float> none;
  for (const float constant : {0.1f, 0.0f, -3e7f}) {
    std::vector<float> v(7, constant);
    normalise<float>(v);
    for (const float x : v) EXPECT_EQ(x, 0) << constant;
  }
  normalise<float>(none);
  std::vector<float> small = {1e-20f, -1e-20f};  // small is not constant
  normalise<float>(small);
  EXPECT_FLOAT_EQ(small[0], 1);
}

TEST(Advantage, AGroupIsCentredAndScaledAsByHand) {
  // Mean 0.25, deviation of a sample 0.5.
  const std::vector<double> returns{0, 1, 0, 0};
  std::vector<double> advantage(4);
  group_advantages(returns, true, advantage);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(advantage[i], (returns[i] - 0.25) / (0.5 + 1e-6), 1e-15);
  group_advantages(returns, false, advantage);
  EXPECT_EQ(advantage, (std::vector<double>{-0.25, 0.75, -0.25, -0.25}));

  RandomStream random(5);
  std::vector<double> many(37), scaled(37);
  for (double& r : many) r = 100 + 7 * random.normal();
  group_advantages(many, true, scaled);
  double sum = 0, squares = 0;
  for (const double a : scaled) sum += a, squares += a * a;
  EXPECT_NEAR(sum, 0, 1e-11);
  EXPECT_NEAR(squares / 36, 1, 1e-5);
}

// The mean of equal numbers need not be that number.
TEST(Advantage, AGroupOfEqualReturnsTeachesNothing) {
  for (const double r : {0.0, 0.1, -3.7, 1e30}) {
    const std::vector<double> returns(7, r);
    std::vector<double> advantage(7, 1);
    EXPECT_TRUE(without_variance(returns));
    group_advantages(returns, true, advantage);
    EXPECT_EQ(advantage, std::vector<double>(7, 0.0)) << r;
  }
  EXPECT_FALSE(without_variance(std::vector<double>{0, 0, 1e-300}));
}

TEST(Advantage, DiscountedReturnsGoOnFromPartToPart) {
  const std::vector<float> reward{1, 2, 3};
  std::vector<float> whole(3), parts(3);
  discounted_returns(reward, 0.5, 0, whole);
  EXPECT_EQ(whole, (std::vector<float>{2.75F, 3.5F, 3}));
  const float after = discounted_returns(std::span(reward).subspan(1), 0.5, 0, std::span(parts).subspan(1));
  discounted_returns(std::span(reward).first(1), 0.5, after, std::span(parts).first(1));
  EXPECT_EQ(parts, whole);
}

}  // namespace
}  // namespace gipo
