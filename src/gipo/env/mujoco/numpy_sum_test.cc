#include "gipo/env/mujoco/numpy_sum.h"

#include <gtest/gtest.h>

#include <vector>

namespace gipo {
namespace {

// Values of np.sum(1 / np.arange(1, n + 1, dtype=np.float32)), float32 through to the last bit.
TEST(NumpySum, OrderIsNumPys) {
  const auto sum = [](std::size_t n) {
    return numpy_sum<float>(0, n, [](std::size_t i) { return 1.0f / static_cast<float>(i + 1); });
  };
  EXPECT_EQ(sum(3), 0x1.d555560000000p+0f);
  EXPECT_EQ(sum(7), 0x1.4be2c00000000p+1f);
  EXPECT_EQ(sum(8), 0x1.5be2c00000000p+1f);
  EXPECT_EQ(sum(17), 0x1.b843440000000p+1f);
  EXPECT_EQ(sum(84), 0x1.40e4f00000000p+2f);
  EXPECT_EQ(sum(128), 0x1.5bb8b00000000p+2f);
  EXPECT_EQ(sum(129), 0x1.5c37b40000000p+2f);
  EXPECT_EQ(sum(300), 0x1.92172e0000000p+2f);
  EXPECT_EQ(sum(1000), 0x1.df11f80000000p+2f);
}

TEST(NumpySum, EveryTermOnce) {
  for (std::size_t n = 0; n < 600; ++n) {
    EXPECT_EQ(numpy_sum<double>(0, n, [](std::size_t i) { return static_cast<double>(i); }),
              static_cast<double>(n * (n - (n > 0))) / 2);
  }
}

}  // namespace
}  // namespace gipo
