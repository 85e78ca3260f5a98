#include "gipo/kernels/fast_tanh.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gipo {
namespace {

TEST(FastTanh, IsWithinItsBoundEverywhereAndKeepsNaN) {
  for (int i = -120000; i <= 120000; ++i) {
    const float x = static_cast<float>(i) * 1e-4f;
    ASSERT_NEAR(fast_tanh(x), std::tanh(static_cast<double>(x)), 4e-7) << x;
  }
  for (const float x : {1e30f, HUGE_VALF}) {
    EXPECT_LT(fast_tanh(x), 1.0f);
    EXPECT_EQ(fast_tanh(-x), -fast_tanh(x));
  }
  EXPECT_TRUE(std::isnan(fast_tanh(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace gipo
