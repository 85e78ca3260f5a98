// The replay with images of several frames, each of which it keeps once, and with observations of before a segment.
#include <gtest/gtest.h>

#include <algorithm>

#include "gipo/io/bytes.h"
#include "gipo/replay/replay_buffer.h"

namespace gipo {
namespace {

constexpr std::size_t kLongest = 4, kPixels = 6;
constexpr std::int64_t kFrames = 4;

TransitionSpec transition(std::size_t burn_in) {
  TransitionSpec spec;
  spec.observation = {{"image", DType::kUint8, {kFrames, 2, 3}}, {"speed", DType::kFloat32, {1}}};
  spec.observation[0].raw = true;
  spec.observation[0].stack = kFrames;
  spec.action_dims = 1;
  spec.stored = false;
  spec.burn_in = burn_in;
  spec.state_size = burn_in > 0 ? 1 : 0;
  spec.longest = kLongest;
  return spec;
}

std::uint8_t pixel(std::int64_t k, std::size_t p) { return static_cast<std::uint8_t>(7 * k + static_cast<int>(p)); }

void write_row(Segment& s, std::size_t row, std::int64_t k) {
  for (std::size_t p = 0; p < kPixels; ++p) s.observation<std::uint8_t>(0)[row * kPixels + p] = pixel(k, p);
  s.observation<float>(1)[row] = static_cast<float>(k);
}

// Episodes of several lengths, in segments, as an actor makes them. Step k of all has the version k; its episode began at
// begin[k], and so did that of what is seen after the last one.
struct Episodes {
  std::vector<std::int64_t> begin;

  Episodes(ReplayBuffer& replay, const TransitionSpec& spec) {
    std::uint64_t sequence = 0;
    for (const std::int64_t length : {1, 9, 3, 4, 17, 2, 8}) {
      const auto first = static_cast<std::int64_t>(begin.size());
      for (std::int64_t at = 0; at < length; at += static_cast<std::int64_t>(kLongest)) {
        Segment s(kLongest, spec);
        s.sequence = sequence++;
        s.length = static_cast<std::size_t>(std::min<std::int64_t>(kLongest, length - at));
        s.terminated = at + static_cast<std::int64_t>(s.length) == length;
        for (std::size_t t = 0; t <= s.length; ++t) {
          const std::int64_t k = first + at + static_cast<std::int64_t>(t);
          write_row(s, t, k);
          if (t < s.length) s.version()[t] = k;
        }
        s.context = std::min(static_cast<std::size_t>(at), spec.context());
        for (std::size_t c = 0; c < s.context; ++c) {
          write_row(s, s.length + 1 + c, first + at - static_cast<std::int64_t>(s.context - c));
        }
        EXPECT_TRUE(replay.insert(s));
      }
      begin.insert(begin.end(), static_cast<std::size_t>(length), first);
    }
  }

  void expect_row(const Batch& b, std::size_t row, std::int64_t k, std::int64_t first) const {
    EXPECT_EQ(b.observation<float>(1)[row], static_cast<float>(k));
    for (std::int64_t f = 0; f < kFrames; ++f) {
      const std::int64_t seen = std::max(k - (kFrames - 1 - f), first);
      for (std::size_t p = 0; p < kPixels; ++p) {
        const std::size_t at = (row * kFrames + static_cast<std::size_t>(f)) * kPixels + p;
        ASSERT_EQ(b.observation<std::uint8_t>(0)[at], pixel(seen, p)) << "step " << k << " frame " << f;
      }
    }
  }

  void expect_true(const Batch& b, std::size_t burn_in) const {
    const auto began = [&](std::int64_t k) { return begin[static_cast<std::size_t>(k)]; };
    for (std::size_t i = 0; i < b.size; ++i) expect_row(b, i, b.version()[i], began(b.version()[i]));
    for (std::size_t w = 0; w < b.stretches.size(); ++w) {
      const Stretch& s = b.stretches[w];
      const std::int64_t last = b.version()[s.begin + s.length - 1], k = b.version()[s.begin];
      expect_row(b, b.size + w, last + 1, began(last));
      if (burn_in == 0) continue;
      const std::int64_t start = k - static_cast<std::int64_t>(s.offset), episode = start - began(k);
      ASSERT_EQ(s.context, s.offset + std::min(burn_in, static_cast<std::size_t>(episode)));
      for (std::size_t n = 0; n < s.context; ++n) {
        expect_row(b, s.context_begin + n, k - static_cast<std::int64_t>(s.context - n), began(k));
      }
    }
  }
};

TEST(ReplayFrames, EveryRowHasTheFramesOfItsEpisode) {
  for (const Sampling sampling : {Sampling::kSegments, Sampling::kTransitions}) {
    for (const std::size_t burn_in : {0, 1, 3, 6}) {
      if (burn_in > 0 && sampling != Sampling::kSegments) continue;
      const TransitionSpec spec = transition(burn_in);
      ReplayBuffer replay({1000, kLongest, spec, sampling}, RandomStream(1));
      const Episodes episodes(replay, spec);
      Batch batch(16, spec);
      for (int n = 0; n < 200; ++n) {
        ASSERT_TRUE(replay.sample(batch));
        episodes.expect_true(batch, burn_in);
      }
    }
  }
}

TEST(ReplayFrames, WhatIsSavedGoesOnTheSame) {
  const TransitionSpec spec = transition(2);
  ReplayBuffer one({1000, kLongest, spec}, RandomStream(1)), other({1000, kLongest, spec}, RandomStream(2));
  const Episodes episodes(one, spec);
  const std::string saved = bytes_of([&](ByteWriter& out) { one.save(out); });
  ByteReader in(saved);
  other.load(in);
  EXPECT_EQ(bytes_of([&](ByteWriter& out) { other.save(out); }), saved);
  Batch batch(16, spec);
  for (int n = 0; n < 50; ++n) {
    ASSERT_TRUE(other.sample(batch));
    episodes.expect_true(batch, 2);
  }
}

// Episodes of 500 steps; what is held, and by how much that grows with the capacity.
TEST(ReplayFrames, FourFramesOf84By84CostHardlyMoreThanOne) {
  constexpr std::size_t kSteps = 64, kEpisode = 500, kCapacity = 20'000;
  TransitionSpec spec;
  spec.observation = {{"image", DType::kUint8, {4, 84, 84}}};
  spec.observation[0].raw = true;
  spec.observation[0].stack = 4;
  spec.action_dims = 1;
  ReplayBuffer replay({kCapacity, kSteps, spec}, RandomStream(1));
  Segment s(kSteps, spec);
  while (replay.evicted() == 0) {
    for (std::size_t at = 0; at < kEpisode; at += kSteps, ++s.sequence) {
      s.length = std::min(kSteps, kEpisode - at);
      s.context = at > 0 ? spec.context() : 0;
      ASSERT_TRUE(replay.insert(s));
    }
  }
  EXPECT_GT(replay.size(), kCapacity - kSteps);
  EXPECT_LE(static_cast<double>(replay.bytes()) / kCapacity, 1.1 * 84 * 84);
  EXPECT_LE(ReplayBuffer::bytes_needed({200'000, kSteps, spec}) / 200'000, 1.1 * 84 * 84);
}

}  // namespace
}  // namespace gipo
