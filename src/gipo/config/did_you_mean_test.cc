#include "gipo/config/did_you_mean.h"

#include <gtest/gtest.h>

namespace gipo {
namespace {

TEST(DidYouMean, TakesTheNearestWithinReach) {
  const std::vector<std::string> known = {"gipo", "ppo", "sapo"};
  EXPECT_EQ(did_you_mean("gippo", known), " (did you mean gipo?)");
  EXPECT_EQ(did_you_mean("sapo", known), " (did you mean sapo?)");
  EXPECT_EQ(did_you_mean("pop", known), " (did you mean ppo?)");
  EXPECT_EQ(did_you_mean("reinforce", known), "");
  EXPECT_EQ(did_you_mean("gipo", {}), "");
}

}  // namespace
}  // namespace gipo
