#include "gipo/train/intake.h"

#include <gtest/gtest.h>

#include "gipo/core/error.h"
#include "gipo/replay/replay_buffer.h"

namespace gipo {
namespace {

const TransitionSpec kTransition = plain_transition(2, 1);

class Arrival : public ::testing::Test {
 protected:
  // One segment, one episode, one fault.
  static ActorReport report(std::uint64_t actor, std::uint64_t incarnation, std::uint64_t sequence) {
    ActorReport r;
    r.actor = actor, r.incarnation = incarnation, r.sequence = sequence;
    Segment& s = r.segments.emplace_back(4, kTransition);
    s.actor = actor, s.incarnation = incarnation, s.sequence = sequence, s.length = 3;
    s.sum_observations();
    r.episodes.push_back({actor, static_cast<std::int64_t>(sequence), 1.0, 3, 3, 0, true, {}});
    r.rejections = {1, {{"worker_died", 1}}, "fault " + std::to_string(sequence)};
    return r;
  }
  void expect_taken(std::size_t n) {
    EXPECT_EQ(replay_.segments(), n);
    EXPECT_EQ(intake_.arrived().episodes.size(), n);
    EXPECT_EQ(intake_.arrived().rejections.count, n);
    EXPECT_EQ(intake_.arrived().rejections.by_name["worker_died"], n);
  }
  ReplayBuffer replay_{{100, 4, kTransition}, RandomStream(1)};
  Intake intake_{replay_, 4};
};

TEST_F(Arrival, SegmentsEpisodesAndFaultsOfAReportCountOnce) {
  intake_.take(report(0, 0, 0));
  intake_.take(report(0, 0, 0));
  intake_.take(report(2, 0, 0));
  expect_taken(2);
  intake_.take(report(0, 0, 1));
  intake_.take(report(0, 0, 0));
  intake_.take(report(0, 0, 1));
  expect_taken(3);
  EXPECT_EQ(intake_.passed_over(), 3u);
  EXPECT_EQ(intake_.arrived().rejections.last, "fault 1");
  ActorReport faults_alone = report(0, 0, 2);
  faults_alone.segments.clear();
  intake_.take(faults_alone);
  intake_.take(faults_alone);
  EXPECT_EQ(intake_.arrived().rejections.count, 4u);
}

TEST_F(Arrival, OfEarlierIncarnationsNothingIsTakenAnyMore) {
  intake_.take(report(0, 0, 7));
  intake_.take(report(0, 1, 0));
  intake_.take(report(0, 0, 8));
  expect_taken(2);
  intake_.pass_over_before(3);
  intake_.take(report(2, 2, 0));
  expect_taken(2);
  intake_.take(report(2, 3, 0));
  expect_taken(3);
}

TEST_F(Arrival, AReportOfAnotherRunIsRefusedAsAWhole) {
  ActorReport r = report(0, 0, 0);
  r.episodes[0].env = 4;
  try {
    intake_.take(r);
    ADD_FAILURE() << "taken";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "report 0 of actor 0 (incarnation 0): an episode of environment 4, the run has 4");
  }
  r = report(0, 0, 0);
  r.segments[0].actor = 9;
  EXPECT_THROW(intake_.take(r), Error);
  expect_taken(0);
  intake_.take(report(0, 0, 0));
  expect_taken(1);
}

TEST_F(Arrival, AnOldSegmentInANewReportEndsTheRun) {
  intake_.take(report(0, 0, 5));
  ActorReport r = report(0, 0, 6);
  r.segments[0].sequence = 5;
  EXPECT_THROW(intake_.take(r), RunError);
}

}  // namespace
}  // namespace gipo
