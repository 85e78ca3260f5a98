#include "gipo/stats/sort_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gipo/core/random.h"

namespace gipo {
namespace {

TEST(SortKeys, OrdersFloatsAsComparisonDoesAndKeepsTags) {
  RandomStream random(1);
  for (const std::size_t n : {0, 1, 2, 17, 256, 3000}) {
    std::vector<float> values(n);
    for (float& v : values) v = static_cast<float>(random.normal() * std::exp(10 * random.normal()));
    if (n > 10) {
      values[3] = std::numeric_limits<float>::infinity();
      values[4] = -std::numeric_limits<float>::infinity();
      values[5] = 0.0f;
      values[6] = values[7] = values[8];
    }
    std::vector<std::uint64_t> keys(n), scratch(n);
    for (std::size_t i = 0; i < n; ++i) keys[i] = float_key(values[i], static_cast<std::uint16_t>(i));
    sort_keys(keys, scratch);
    std::vector<float> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(float_of(keys[i]), sorted[i]);
      EXPECT_EQ(values[tag_of(keys[i])], sorted[i]);
      if (i > 0 && sorted[i] == sorted[i - 1]) {
        EXPECT_LT(tag_of(keys[i - 1]), tag_of(keys[i]));
      }
    }
  }
}

TEST(SortKeys, NanStandsAtTheEnds) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::uint64_t> keys = {float_key(1e30f, 0), float_key(nan, 1), float_key(-1e30f, 2), float_key(-nan, 3)};
  std::vector<std::uint64_t> scratch(keys.size());
  sort_keys(keys, scratch);
  EXPECT_TRUE(std::isnan(float_of(keys.front())));
  EXPECT_TRUE(std::isnan(float_of(keys.back())));
}

// Floats of one magnitude beside one that is far larger, of many magnitudes, all the same.
TEST(SortKeys, OrdersWhatTheDigitsDoNotTellApart) {
  RandomStream random(1);
  for (const double spread : {0.0, 1e-7, 1e-3, 1.0, 30.0}) {
    for (const float outlier : {1.0f, 1e30f, -1e30f}) {
      std::vector<float> values(300);
      for (float& v : values) v = static_cast<float>(std::exp(spread * random.normal()));
      values[100] = outlier;
      std::vector<std::uint64_t> keys(values.size()), scratch(values.size());
      for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = float_key(values[i], static_cast<std::uint16_t>(i));
      sort_keys(keys, scratch);
      std::sort(values.begin(), values.end());
      for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(float_of(keys[i]), values[i]);
    }
  }
}

}  // namespace
}  // namespace gipo
