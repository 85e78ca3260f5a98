#include "gipo/core/signals.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace gipo {
namespace {

using Heard = SignalRequest::Heard;

TEST(SignalRequest, SignalsWithinASecondAreOneRequest) {
  SignalRequest request;
  EXPECT_FALSE(request.stop());
  EXPECT_EQ(request.hear(), Heard::kFirst);
  EXPECT_TRUE(request.stop());
  EXPECT_EQ(request.hear(), Heard::kSame);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_EQ(request.hear(), Heard::kAgain);
  EXPECT_EQ(request.hear(), Heard::kAgain);
}

}  // namespace
}  // namespace gipo
