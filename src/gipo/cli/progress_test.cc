#include "gipo/cli/progress.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gipo::cli {
namespace {

Progress at(std::int64_t update, std::int64_t env_steps, double seconds) {
  Progress p;
  p.update = update;
  p.updates = 1000;
  p.env_steps = env_steps;
  p.seconds = seconds;
  p.recent_return = -0.12345;
  p.gap_mean = 7;
  return p;
}

// A minute of warm-up, then 100 updates a second: the whole time over the first updates would say ten hours.
TEST(ProgressLine, TheWarmUpIsNoPartOfTheTimeLeft) {
  ProgressLine line("run", true);
  EXPECT_EQ(line.text(at(1, 5008, 60.0)), "run   0%  - env steps/s  - updates/s  return -0.123  gap 7  ETA -");
  EXPECT_EQ(line.text(at(11, 5088, 60.1)), "run   1%  800 env steps/s  100 updates/s  return -0.123  gap 7  ETA 10s");
  EXPECT_EQ(line.text(at(1000, 13000, 70.0)), "run 100%  799 env steps/s  100 updates/s  return -0.123  gap 7  1m10s");
}

TEST(ProgressLine, LinesBeforeTheFirstUpdateMoveItsBeginning) {
  ProgressLine line("run", true);
  line.text(at(0, 1000, 10.0));
  line.text(at(0, 5000, 60.0));
  EXPECT_NE(line.text(at(100, 5800, 61.0)).find("100 updates/s  return -0.123  gap 7  ETA 9s"), std::string::npos);
}

// The seconds are those of this process, the updates those of the run.
TEST(ProgressLine, AResumedRunCountsFromWhereItBegan) {
  ProgressLine line("run", true);
  line.text(at(900, 9000, 1.0));
  EXPECT_NE(line.text(at(910, 9100, 2.0)).find("100 env steps/s  10 updates/s"), std::string::npos);
}

TEST(ProgressLine, NumbersHaveThreeDigits) {
  EXPECT_EQ(in_digits(0), "0");
  EXPECT_EQ(in_digits(0.0123456), "0.0123");
  EXPECT_EQ(in_digits(-0.5), "-0.500");
  EXPECT_EQ(in_digits(12.345), "12.3");
  EXPECT_EQ(in_digits(-199.6), "-200");
  EXPECT_EQ(in_digits(12345.6), "12346");
  EXPECT_EQ(in_digits(1.234e-7), "1.23e-07");
  EXPECT_EQ(in_digits(std::nan("")), "nan");
}

}  // namespace
}  // namespace gipo::cli
