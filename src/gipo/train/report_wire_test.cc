#include "gipo/train/report_wire.h"

#include <gtest/gtest.h>

#include <cstring>

#include "gipo/core/error.h"
#include "gipo/data/wire.h"
#include "gipo/io/bytes.h"
#include "gipo/io/checksum.h"

namespace gipo {
namespace {

constexpr std::size_t kLongest = 4;

TransitionSpec transition() { return plain_transition(3, 2, false); }

Segment segment(std::uint64_t env, std::size_t length) {
  Segment s(kLongest, transition());
  s.actor = env, s.incarnation = 2, s.sequence = 10 + length, s.length = length, s.terminated = true;
  for (float& v : s.observation()) v = 0.5F;
  s.reward()[0] = 7;
  s.sum_observations();
  return s;
}

ActorReport filled() {
  ActorReport r;
  r.actor = 8, r.incarnation = 2, r.sequence = 5, r.steps = 12;
  r.segments.push_back(segment(8, 3));
  r.segments.push_back(segment(9, 1));
  r.episodes.push_back({8, 4, 1.5, 30, 400, 6, true, {true, true, false}});
  r.episodes.push_back({9, 0, -2.0, 1, 401, 7, false, {}});
  r.rejections = {3, {{"reward_not_finite", 1}, {"worker_died", 2}}, "it was ended by signal 11"};
  return r;
}

std::string encoded(const ActorReport& report) {
  ByteWriter out;
  encode_report(report, out);
  return out.take();
}

std::string said(const std::string& message, ReportDecoder& decoder) {
  try {
    decoder.decode(message);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing";
}

// With checksums of what the bytes now are.
std::string sealed(std::string message) {
  const auto seal = [&](std::size_t at) {
    const std::uint32_t crc = crc32c(std::string_view(message).substr(0, at));
    std::memcpy(message.data() + at, &crc, 4);
  };
  seal(kReportHeadBytes - 4);
  seal(message.size() - 4);
  return message;
}

TEST(ReportWire, AReportArrivesAsItWasSent) {
  const ActorReport sent = filled();
  const std::string message = encoded(sent);
  EXPECT_EQ(report_bytes(message.substr(0, kReportHeadBytes)), message.size());
  ReportDecoder decoder(kLongest, transition());
  for (int again = 0; again < 2; ++again) {  // the second into the buffers of the first
    const ActorReport& got = decoder.decode(message);
    EXPECT_EQ(got.actor, 8u);
    EXPECT_EQ(got.incarnation, 2u);
    EXPECT_EQ(got.sequence, 5u);
    EXPECT_EQ(got.steps, 12);
    ASSERT_EQ(got.segments.size(), 2u);
    EXPECT_EQ(got.segments[0].actor, 8u);
    EXPECT_EQ(got.segments[0].length, 3u);
    EXPECT_EQ(got.segments[1].actor, 9u);
    EXPECT_EQ(got.segments[1].reward()[0], 7);
    ASSERT_EQ(got.episodes.size(), 2u);
    EXPECT_EQ(got.episodes[0].number, 4);
    EXPECT_EQ(got.episodes[0].episode_return, 1.5);
    EXPECT_TRUE(got.episodes[0].terminated);
    EXPECT_TRUE(got.episodes[0].success.known && got.episodes[0].success.ever && !got.episodes[0].success.last);
    EXPECT_EQ(got.episodes[1].env_steps, 401);
    EXPECT_FALSE(got.episodes[1].success.known);
    EXPECT_EQ(got.rejections.count, 3u);
    EXPECT_EQ(got.rejections.by_name, sent.rejections.by_name);
    EXPECT_EQ(got.rejections.last, "it was ended by signal 11");
    EXPECT_EQ(encoded(got), message);
  }
  const ActorReport nothing;
  EXPECT_EQ(encoded(decoder.decode(encoded(nothing))), encoded(nothing));
}

TEST(ReportWire, EveryFlippedByteIsDetected) {
  ReportDecoder decoder(kLongest, transition());
  const std::string message = encoded(filled());
  for (std::size_t i = 0; i < message.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string damaged = message;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      EXPECT_NE(said(damaged, decoder), "nothing") << "byte " << i;
      if (i < kReportHeadBytes) {
        EXPECT_THROW(report_bytes(damaged), Error) << "byte " << i;
      }
    }
  }
}

TEST(ReportWire, EveryTruncationAndEveryTrailingByteIsDetected) {
  ReportDecoder decoder(kLongest, transition());
  const std::string message = encoded(filled());
  for (std::size_t size = 0; size < message.size(); ++size) {
    EXPECT_NE(said(message.substr(0, size), decoder).find("cut short"), std::string::npos) << size;
  }
  for (std::size_t more = 1; more < 100; ++more) {
    EXPECT_NE(said(message + std::string(more, '\0'), decoder).find("too long"), std::string::npos) << more;
  }
}

TEST(ReportWire, SaysWhatWasExpectedAndWhatCame) {
  ReportDecoder decoder(kLongest, transition());
  const std::string message = encoded(filled());
  const auto changed = [&](std::size_t at, auto value) {
    std::string other = message;
    std::memcpy(other.data() + at, &value, sizeof value);
    return said(sealed(other), decoder);
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(changed(24, std::uint64_t{8}), "nothing") << "the actor, as it was";
  expect(said("hello", decoder), "cut short: 5 bytes, it begins with 24");
  expect(changed(0, 'G'), "does not begin with gipo.rep");
  expect(changed(8, std::uint64_t{20}), "it has 20 bytes, the shortest has 92");
  expect(changed(8, std::uint64_t{1} << 60), "cut short");
  expect(changed(16, std::uint32_t{2}), "its format is 2, this program reads 1");
  expect(changed(32, std::uint64_t{3}), "a segment of incarnation 2 in a report of 3");
  expect(changed(48, std::int64_t{-1}), "it has -1 environment steps, wanted 0 or more");
  expect(changed(56, ~std::uint64_t{0}), "it has 18446744073709551615 episodes");
  expect(changed(64 + 8, std::int64_t{-1}), "episode -1 of environment 8");
  expect(changed(64 + 24, std::int64_t{0}), "has 0 steps");
  expect(changed(64 + 48, std::uint64_t{16}), "unknown flags 0x10");
  expect(changed(64 + 2 * 56, std::uint64_t{1000}), "1000 kinds of fault");
  expect(changed(message.find("reward_not"), 'z'), "the fault worker_died does not come after zeward_not_finite");
  expect(changed(message.find("gipo.seg"), 'G'), "message with a segment: it does not begin with gipo.seg");
  ReportDecoder shorter(2, transition()), other(kLongest, plain_transition(4, 2, false));
  expect(said(message, shorter), "it has 3 steps, wanted 1 to 2");
  expect(said(message, other), "its columns have the fingerprint");
}

TEST(ReportWire, ADecoderGoesOnAfterAMessageThatIsRefused) {
  ReportDecoder decoder(kLongest, transition());
  const std::string message = encoded(filled());
  std::string damaged = message;
  damaged[message.rfind("gipo.seg")] = 'G';  // in the second segment, after much was read
  EXPECT_NE(said(sealed(damaged), decoder), "nothing");
  EXPECT_EQ(encoded(decoder.decode(message)), message);
}

}  // namespace
}  // namespace gipo
