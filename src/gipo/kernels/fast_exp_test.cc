#include "gipo/kernels/fast_exp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace gipo {
namespace {

TEST(FastExp, IsWithinItsErrorOfTheExact) {
  double worst = 0;
  for (float x = -87; x <= 87; x += 1.0f / 512) {
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(fast_exp(x)) - exact) / exact);
  }
  EXPECT_LT(worst, 3e-7);
  EXPECT_GT(worst, 0);
  EXPECT_EQ(fast_exp(0), 1);
  EXPECT_TRUE(std::isnan(fast_exp(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace gipo
