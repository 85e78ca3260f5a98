// The replay with fields of several types and a state at the start of each segment.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/replay/replay_buffer.h"
#include "gipo/replay/replay_snapshot.h"

namespace gipo {
namespace {

constexpr std::size_t kLongest = 8, kPixels = 27, kState = 3;

TransitionSpec transition() {
  TransitionSpec spec;
  spec.observation = {{"image", DType::kUint8, {3, 3, 3}},
                      {"count", DType::kInt32, {1}, Role::kPolicy, {10'000}},
                      {"place", DType::kFloat64, {2}, Role::kCritic}};
  spec.action_dims = 1;
  spec.stored = false;
  spec.state_size = kState;
  spec.longest = kLongest;
  return spec;
}

ReplayShape shape(std::size_t capacity, Sampling sampling = Sampling::kSegments) {
  return {capacity, kLongest, transition(), sampling};
}

void write_observation(Segment& s, std::size_t t, std::int64_t k) {
  for (std::size_t p = 0; p < kPixels; ++p) {
    s.observation<std::uint8_t>(0)[t * kPixels + p] = static_cast<std::uint8_t>(k + static_cast<std::int64_t>(p));
  }
  s.observation<std::int32_t>(1)[t] = static_cast<std::int32_t>(k);
  for (const std::size_t d : {0, 1}) s.observation<double>(2)[2 * t + d] = static_cast<double>(k) + 0.1;
}

// Every number says which step it is.
Segment segment(std::size_t length, std::int64_t first) {
  Segment s(kLongest, transition());
  s.length = length;
  s.sequence = static_cast<std::uint64_t>(first);
  for (std::size_t t = 0; t <= length; ++t) {
    const std::int64_t k = first + static_cast<std::int64_t>(t);
    write_observation(s, t, k);
    if (t < length) s.version()[t] = k, s.reward()[t] = static_cast<float>(k);
  }
  for (float& v : s.state()) v = static_cast<float>(first);
  return s;
}

void expect_observation(const Batch& b, std::size_t row, std::int64_t k) {
  for (std::size_t p = 0; p < kPixels; ++p) {
    EXPECT_EQ(b.observation<std::uint8_t>(0)[row * kPixels + p],
              static_cast<std::uint8_t>(k + static_cast<std::int64_t>(p)));
  }
  EXPECT_EQ(b.observation<std::int32_t>(1)[row], k);
  EXPECT_EQ(b.observation<double>(2)[2 * row + 1], static_cast<double>(k) + 0.1);
}

void expect_consistent(const Batch& b) {
  for (std::size_t i = 0; i < b.size; ++i) {
    EXPECT_EQ(b.reward()[i], static_cast<float>(b.version()[i]));
    expect_observation(b, i, b.version()[i]);
  }
  for (std::size_t w = 0; w < b.stretches.size(); ++w) {
    const Stretch& stretch = b.stretches[w];
    EXPECT_EQ(stretch.context, stretch.offset);
    for (std::size_t n = 0; n < stretch.context; ++n) {
      expect_observation(b, stretch.context_begin + n,
                         b.version()[stretch.begin] - static_cast<std::int64_t>(stretch.offset - n));
    }
    expect_observation(b, b.size + w, b.version()[stretch.begin + stretch.length - 1] + 1);
    const auto start = static_cast<float>(b.version()[stretch.begin] - static_cast<std::int64_t>(stretch.offset));
    for (std::size_t d = 0; d < kState; ++d) EXPECT_EQ(b.state()[w * kState + d], start);
  }
}

std::string saved(const ReplayBuffer& replay) {
  return bytes_of([&](ByteWriter& out) { replay.save(out); });
}

TEST(ReplayColumns, RowsOfEveryTypeBelongTogetherWhileItGrows) {
  for (const Sampling sampling : {Sampling::kSegments, Sampling::kTransitions, Sampling::kEpochs}) {
    ReplayBuffer replay(shape(60, sampling), RandomStream(1));
    RandomStream random(2);
    Batch batch(16, transition());
    std::int64_t next = 0;
    for (int i = 0; i < 90; ++i) {
      // Short ones in the middle: more segments than it was made for.
      const std::size_t length = i / 30 == 1 ? 1 : 1 + random.below(kLongest);
      ASSERT_TRUE(replay.insert(segment(length, next)));
      next += static_cast<std::int64_t>(length);
      ASSERT_TRUE(replay.sample(batch));
      expect_consistent(batch);
      if (i % 40 != 0) continue;
      ReplayBuffer copy(shape(60, sampling), RandomStream(3));
      const std::string bytes = saved(replay);
      ByteReader in(bytes);
      copy.load(in);
      EXPECT_EQ(in.left(), 0u);
      EXPECT_EQ(saved(copy), bytes);
    }
  }
}

TEST(ReplayColumns, ASnapshotHasTheStatesOfItsMoment) {
  for (const int inserts : {0, 10, 300}) {
    ReplayBuffer replay(shape(60), RandomStream(1));
    std::int64_t next = 0;
    for (int i = 0; i < 30; ++i, next += 5) replay.insert(segment(5, next));
    const std::string then = saved(replay);
    const auto snapshot = replay.snapshot();
    for (int i = 0; i < inserts; ++i) replay.insert(segment(1, next++));
    ByteWriter out;
    snapshot->save(out);
    EXPECT_EQ(out.bytes(), then);
  }
}

TEST(ReplayColumns, APixelIsAByte) {
  EXPECT_EQ(ReplayBuffer::bytes_per_transition(shape(60)), kPixels + 4 + 16 + 4 + 4 + 4 + 8);
}

// Where rows are large, little is kept spare.
TEST(ReplayColumns, ImagesTakeLittleMoreMemoryThanTheirBytes) {
  TransitionSpec spec = transition();
  spec.observation = {{"image", DType::kUint8, {84, 84, 3}}};
  const ReplayShape large{20'000, 64, spec};
  const double payload = 20'000.0 * static_cast<double>(ReplayBuffer::bytes_per_transition(large));
  EXPECT_LE(ReplayBuffer::bytes_needed(large), 1.07 * payload);
  const ReplayShape larger{1'000'000, 64, spec};
  EXPECT_LE(ReplayBuffer::bytes_needed(larger), 1.02 * 50 * payload);
}

TEST(ReplayColumns, LoadRefusesWhatNoStepHolds) {
  const auto refused = [](auto change) {
    Segment s = segment(4, 0);
    change(s);
    ReplayBuffer replay(shape(60), RandomStream(1)), other(shape(60), RandomStream(1));
    replay.insert(s);
    const std::string bytes = saved(replay);
    ByteReader in(bytes);
    try {
      other.load(in);
    } catch (const Error& e) {
      EXPECT_EQ(other.size(), 0u);
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused([](Segment& s) { s.observation<std::uint8_t>(0)[5] = 255; }), "");
  EXPECT_NE(refused([](Segment& s) {
              s.observation<double>(2)[9] = std::numeric_limits<double>::infinity();
            }).find("place: one that is not finite"),
            std::string::npos);
  EXPECT_NE(refused([](Segment& s) { s.state()[0] = std::numeric_limits<float>::quiet_NaN(); }).find("state"),
            std::string::npos);
  EXPECT_NE(refused([](Segment& s) { s.observation<std::int32_t>(1)[0] = -1; }).find("count"), std::string::npos);
  EXPECT_NE(refused([](Segment& s) { s.version()[3] = -1; }).find("version"), std::string::npos);
}

TEST(Table, ColumnsHaveTheirTypeAndBeginSixteenBytesIntoACacheLine) {
  Segment s(kLongest, transition());
  for (std::size_t c = 0; c < s.layout().columns.size(); ++c) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(s.table().row(c, 0)) % 64, 16u);
  }
  EXPECT_EQ(s.observation<std::uint8_t>(0).size(), (kLongest + 1) * kPixels);
  EXPECT_EQ(s.state().size(), kState);
  EXPECT_THROW(s.observation<float>(0), InvariantError);
  EXPECT_THROW(s.advantage(), InvariantError) << "not stored";
}

}  // namespace
}  // namespace gipo
