#include "gipo/io/number_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace gipo {
namespace {

TEST(NumberText, DecimalsAndNothingElse) {
  EXPECT_EQ(decimal_number("16"), 16);
  EXPECT_EQ(decimal_number("+.5e-1"), 0.05);
  EXPECT_EQ(decimal_number(" -3"), -3);
  EXPECT_EQ(decimal_number("1e999"), HUGE_VAL);
  EXPECT_TRUE(std::isnan(decimal_number("nan").value()));
  for (const std::string& text : std::vector<std::string>{"", " ", "0x10", "0X1p-3", "-0x1", "1x", "1 ", "1,5",
                                                          "nan(0)", std::string("1\0", 2)}) {
    EXPECT_FALSE(decimal_number(text)) << text;
  }
}

}  // namespace
}  // namespace gipo
