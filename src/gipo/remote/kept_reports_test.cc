#include "gipo/remote/kept_reports.h"

#include <gtest/gtest.h>

#include "gipo/io/bytes.h"

namespace gipo {
namespace {

std::shared_ptr<ByteWriter> ten_bytes() {
  auto message = std::make_shared<ByteWriter>();
  message->append(std::string_view("0123456789"));
  return message;
}

KeptReports with(std::uint64_t count, std::size_t most = 1000) {
  KeptReports kept(most);
  for (std::uint64_t i = 0; i < count; ++i) kept.add({i, 4, ten_bytes()});
  return kept;
}

void send_all(KeptReports& kept) {
  while (kept.next()) kept.sent();
}

TEST(KeptReports, SendsInOrderAndForgetsWhatIsSaved) {
  KeptReports kept = with(3);
  ASSERT_TRUE(kept.next());
  EXPECT_EQ(kept.next()->sequence, 0u);
  kept.sent();
  EXPECT_EQ(kept.next()->sequence, 1u);
  send_all(kept);
  EXPECT_EQ(kept.next(), nullptr);
  EXPECT_FALSE(kept.all_received());
  kept.received(3);
  EXPECT_TRUE(kept.all_received());
  EXPECT_EQ(kept.steps(), 12);  // a learner that is killed needs them again
  kept.saved(2);
  EXPECT_EQ(kept.steps(), 4);
}

TEST(KeptReports, CountsWhatIsUnderWayAndWhatWaits) {
  KeptReports kept = with(5);
  kept.sent();
  kept.sent();
  EXPECT_EQ(kept.under_way(), 2u);
  EXPECT_EQ(kept.waiting_bytes(1000), 30u);
  EXPECT_EQ(kept.waiting_bytes(15), 20u);  // no further than enough
  kept.received(1);
  EXPECT_EQ(kept.under_way(), 1u);
  send_all(kept);
  EXPECT_EQ(kept.under_way(), 4u);
  EXPECT_EQ(kept.waiting_bytes(1000), 0u);
  kept.go_back(3, 1);
  EXPECT_EQ(kept.under_way(), 0u);
  EXPECT_EQ(kept.waiting_bytes(1000), 20u);
}

TEST(KeptReports, ALearnerThatWasStartedAgainGetsWhatItHadNotSaved) {
  KeptReports kept = with(5);
  send_all(kept);
  kept.received(4);
  kept.go_back(2, 2);
  ASSERT_TRUE(kept.next());
  EXPECT_EQ(kept.next()->sequence, 2u);
  EXPECT_EQ(kept.steps(), 12);
}

TEST(KeptReports, AfterABreakAloneOnlyTheRestIsSentAndTheUnsavedIsKept) {
  KeptReports kept = with(5);
  send_all(kept);
  kept.go_back(4, 1);
  ASSERT_TRUE(kept.next());
  EXPECT_EQ(kept.next()->sequence, 4u);
  EXPECT_EQ(kept.steps(), 16);
}

TEST(KeptReports, BeyondItsBoundTheReceivedLeaveAndTheOthersStay) {
  KeptReports kept = with(4, 40);
  EXPECT_TRUE(kept.full());  // nothing of it was received
  send_all(kept);
  kept.received(2);
  EXPECT_FALSE(kept.full());
  kept.add({4, 4, ten_bytes()});
  EXPECT_EQ(kept.let_go(), 1u);
  EXPECT_EQ(kept.bytes(), 40u);
  EXPECT_EQ(kept.next()->sequence, 4u);
  kept.add({5, 4, ten_bytes()});
  kept.add({6, 4, ten_bytes()});
  EXPECT_EQ(kept.let_go(), 2u);
  EXPECT_EQ(kept.bytes(), 50u);  // what was not received never leaves
  EXPECT_TRUE(kept.full());
}

TEST(KeptReports, MemoryOfWhatHasLeftIsUsedAgainUnlessSomebodyReadsItStill) {
  KeptReports kept(1000);
  const std::shared_ptr<ByteWriter> read = ten_bytes();
  std::shared_ptr<ByteWriter> other = ten_bytes();
  const ByteWriter* const free = other.get();
  kept.add({0, 4, read});
  kept.add({1, 4, std::move(other)});
  send_all(kept);
  kept.received(2);
  kept.saved(2);
  EXPECT_EQ(kept.room().get(), free);
  EXPECT_NE(kept.room(), read);
}

TEST(KeptReports, AnOldAcknowledgementTakesNothingBack) {
  KeptReports kept = with(3);
  send_all(kept);
  kept.received(3);
  kept.received(1);
  EXPECT_TRUE(kept.all_received());
  kept.saved(0);
  EXPECT_EQ(kept.steps(), 12);
}

}  // namespace
}  // namespace gipo
