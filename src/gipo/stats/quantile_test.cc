#include "gipo/stats/quantile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gipo/core/error.h"
#include "gipo/core/random.h"

namespace gipo {
namespace {

double by_sorting(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  const double h = q * static_cast<double>(v.size() - 1);
  const auto k = static_cast<std::size_t>(std::floor(h));
  const double high = v[std::min(k + 1, v.size() - 1)];
  return v[k] + (high - v[k]) * (h - static_cast<double>(k));
}

TEST(Quantile, ByHand) {
  std::vector<double> v = {3, 1, 2, 10};  // numpy.quantile([3, 1, 2, 10], q)
  EXPECT_DOUBLE_EQ(quantile<double>(v, 0), 1);
  EXPECT_DOUBLE_EQ(quantile<double>(v, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(quantile<double>(v, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile<double>(v, 0.9), 7.9);
  EXPECT_DOUBLE_EQ(quantile<double>(v, 1), 10);
}

TEST(Quantile, EmptyIsZeroAndOneValueIsItself) {
  std::vector<float> none, one = {7};
  EXPECT_EQ(quantile<float>(none, 0.5), 0);
  EXPECT_EQ(quantile<float>(one, 0), 7);
  EXPECT_EQ(quantile<float>(one, 0.99), 7);
}

TEST(Quantile, SeveralAtOnceMatchSorting) {
  RandomStream random(5);
  const std::vector<double> q = {0, 0, 0.01, 0.5, 0.5, 0.505, 0.9, 0.95, 0.99, 1, 1};
  for (std::size_t n = 1; n < 70; ++n) {
    std::vector<double> v(n);
    for (double& x : v) x = std::floor(random.uniform(-8, 8)) + (n % 2 ? random.uniform() : 0);  // even n: many ties
    std::vector<float> f(v.begin(), v.end());
    const std::vector<double> kept = v;
    std::vector<double> out(q.size()), out_float(q.size());
    quantiles<double>(v, q, out);
    quantiles<float>(f, q, out_float);
    for (std::size_t i = 0; i < q.size(); ++i) {
      EXPECT_NEAR(out[i], by_sorting(kept, q[i]), 1e-12) << n << " values, q " << q[i];
      EXPECT_NEAR(out_float[i], out[i], 1e-5) << n << " values, q " << q[i];
    }
  }
}

TEST(Quantile, LongOrderedAndTiedArrays) {
  const std::vector<double> q = {0.01, 0.5, 0.95, 0.99};
  for (int shape = 0; shape < 5; ++shape) {
    std::vector<double> v(3001), out(q.size());
    for (int i = 0; i < 3001; ++i) {
      const double shapes[] = {double(i), double(-i), double(i % 4), double(std::min(i, 3000 - i)), 7};
      v[static_cast<std::size_t>(i)] = shapes[shape];
    }
    const std::vector<double> kept = v;
    quantiles<double>(v, q, out);
    for (std::size_t i = 0; i < q.size(); ++i) EXPECT_NEAR(out[i], by_sorting(kept, q[i]), 1e-9) << "shape " << shape;
    EXPECT_TRUE(std::is_permutation(v.begin(), v.end(), kept.begin())) << shape;
  }
}

TEST(Quantile, NonFiniteValues) {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> infinite = {1, inf, inf, -inf};
  EXPECT_EQ(quantile<double>(infinite, 1), inf);
  EXPECT_EQ(quantile<double>(infinite, 0), -inf);
  EXPECT_EQ(quantile<double>(infinite, 0.9), inf);
  std::vector<double> nan = {1, std::nan(""), 2};
  EXPECT_TRUE(std::isnan(quantile<double>(nan, 0)));
}

TEST(Quantile, RefusesDescendingAndOutOfRange) {
  std::vector<double> v = {1, 2}, out(2);
  EXPECT_THROW(quantiles<double>(v, std::vector<double>{0.9, 0.1}, out), InvariantError);
  EXPECT_THROW(quantile<double>(v, 1.5), InvariantError);
}

}  // namespace
}  // namespace gipo
