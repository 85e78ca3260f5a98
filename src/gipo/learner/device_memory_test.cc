#include "gipo/learner/device_memory.h"

#include <gtest/gtest.h>

#include "gipo/bench/made_up.h"
#include "gipo/core/error.h"

namespace gipo {
namespace {

TEST(DeviceMemory, WhatDoesNotFitIsNamedWithTheBatchThatDoes) {
  const LearnerSetup setup = made_up_setup(7, ActionSpace::discrete(2), Widths{8}, 1000);
  const auto bytes = [](const LearnerSetup& s) { return 2e9 + 1e7 * static_cast<double>(s.learner.batch_size); };
  const auto complaint = [&](double free) {
    try {
      refuse_what_the_device_lacks(setup, "learner.device = cuda", bytes, free, 16e9);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(complaint(12e9), "");
  EXPECT_EQ(
      complaint(8e9),
      "learner.device = cuda: learner.batch_size = 1000 with these networks takes 12.0 GB of the device's memory, "
      "and 8.0 of 16.0 GB are free: a batch of 600 fits");
  EXPECT_NE(complaint(1e9).find("no batch fits: lower policy.hidden"), std::string::npos) << complaint(1e9);
}

}  // namespace
}  // namespace gipo
