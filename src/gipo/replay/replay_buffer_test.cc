#include "gipo/replay/replay_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/replay/replay_snapshot.h"

namespace gipo {
namespace {

constexpr std::size_t kLongest = 8;

ReplayShape shape(std::size_t capacity, Sampling sampling = Sampling::kSegments) {
  return {capacity, kLongest, plain_transition(2, 1), sampling};
}

// Every number says which step it is: step k of the whole stream.
Segment segment(std::size_t length, std::int64_t first, bool terminated = false) {
  Segment s(kLongest, plain_transition(2, 1));
  s.length = length;
  s.terminated = terminated;
  s.sequence = static_cast<std::uint64_t>(first);
  s.first_env_step = static_cast<double>(first);
  s.env_step_stride = 1;
  for (std::size_t t = 0; t <= length; ++t) {
    const auto k = static_cast<float>(first + static_cast<std::int64_t>(t));
    s.observation()[2 * t] = k;
    s.observation()[2 * t + 1] = -k;
    if (t == length) break;
    s.action()[t] = s.log_prob()[t] = s.reward()[t] = s.advantage()[t] = s.target()[t] = k;
    s.version()[t] = first + static_cast<std::int64_t>(t);
  }
  return s;
}

void expect_consistent(const Batch& b) {
  for (std::size_t i = 0; i < b.size; ++i) {
    const float k = b.reward()[i];
    EXPECT_EQ(b.observation()[2 * i], k);
    EXPECT_EQ(b.observation()[2 * i + 1], -k);
    EXPECT_EQ(b.action()[i], k);
    EXPECT_EQ(b.target()[i], k);
    EXPECT_EQ(b.version()[i], static_cast<std::int64_t>(k));
    EXPECT_EQ(b.env_step[i], k);
  }
  std::size_t at = 0;
  for (std::size_t w = 0; w < b.stretches.size(); ++w) {
    EXPECT_EQ(b.stretches[w].begin, at);
    at += b.stretches[w].length;
    EXPECT_EQ(b.observation()[2 * (b.size + w)], b.reward()[at - 1] + 1) << "the row after the window's end";
  }
  EXPECT_EQ(at, b.stretches.empty() ? 0 : b.size);
}

TEST(ReplayBuffer, EmptyGivesNoBatch) {
  ReplayBuffer replay(shape(100), RandomStream(1));
  Batch batch(16, plain_transition(2, 1));
  EXPECT_FALSE(replay.sample(batch));
}

TEST(ReplayBuffer, RowsOfABatchBelongTogetherThroughManyEvictionsAndLengths) {
  ReplayBuffer replay(shape(100), RandomStream(1));
  RandomStream random(2);
  Batch batch(16, plain_transition(2, 1));
  std::int64_t next = 0;
  for (int i = 0; i < 500; ++i) {
    const std::size_t length = 1 + random.below(kLongest);
    replay.insert(segment(length, next, random.below(2) == 0));
    next += static_cast<std::int64_t>(length);
    ASSERT_TRUE(replay.sample(batch));
    expect_consistent(batch);
    EXPECT_LE(replay.size(), 100u);
    // First in, first out: nothing older than the capacity is left.
    for (std::size_t k = 0; k < batch.size; ++k) EXPECT_GE(batch.version()[k], next - 100);
  }
  EXPECT_EQ(replay.inserted(), static_cast<std::uint64_t>(next));
  EXPECT_EQ(replay.evicted() + replay.size(), replay.inserted());
}

TEST(ReplayBuffer, HoldsAsMuchAsItsCapacityWhenSegmentsAreShort) {
  ReplayBuffer replay(shape(100), RandomStream(1));
  for (std::int64_t i = 0; i < 300; ++i) replay.insert(segment(1, i));
  EXPECT_EQ(replay.size(), 100u);
}

TEST(ReplayBuffer, TakesLittleMoreMemoryThanItsTransitions) {
  const ReplayShape shape{50'000, 64, plain_transition(17, 6, false)};
  ReplayBuffer replay(shape, RandomStream(1));
  Segment s(64, shape.transition);
  for (const std::size_t length : {64, 40}) {
    s.length = length;
    for (std::size_t i = 0; i < 3 * shape.capacity; i += length, ++s.sequence) EXPECT_TRUE(replay.insert(s));
    const std::size_t payload = shape.capacity * ReplayBuffer::bytes_per_transition(shape);
    EXPECT_LE(static_cast<double>(replay.bytes()), 1.1 * static_cast<double>(payload));
    EXPECT_GT(replay.bytes(), payload);
  }
}

TEST(ReplayBuffer, TerminationIsSeenOnlyAtTheTrueEndOfASegment) {
  ReplayBuffer replay(shape(100), RandomStream(1));
  replay.insert(segment(8, 0, true));
  Batch batch(13, plain_transition(2, 1));  // one whole segment and a part of one
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(replay.sample(batch));
    expect_consistent(batch);
    for (const Stretch& w : batch.stretches) {
      EXPECT_EQ(w.terminated, batch.reward()[w.begin + w.length - 1] == 7);
    }
  }
}

// How often each step was drawn, relative to the uniform rate; draws should leave 0.3% of noise.
std::vector<double> drawn(ReplayBuffer& replay, std::int64_t steps, std::size_t batch_size, std::size_t draws) {
  std::vector<double> rate(static_cast<std::size_t>(steps));
  Batch batch(batch_size, plain_transition(2, 1));
  const std::size_t batches = draws / batch_size;
  for (std::size_t i = 0; i < batches; ++i) {
    replay.sample(batch);
    for (const std::int64_t v : batch.version()) rate[static_cast<std::size_t>(v)] += 1;
  }
  for (double& r : rate) r *= static_cast<double>(steps) / static_cast<double>(batches * batch_size);
  return rate;
}

// At every batch size, whatever the lengths of the segments and wherever the end of a batch cuts them.
TEST(SamplingRates, EveryTransitionIsEquallyLikely) {
  const std::vector<std::vector<std::size_t>> mixtures = {{8, 8, 8, 8, 8}, {8, 1, 3, 8, 2, 6, 4}};
  for (const Sampling sampling : {Sampling::kSegments, Sampling::kTransitions}) {
    for (const std::vector<std::size_t>& lengths : mixtures) {
      ReplayBuffer replay(shape(64, sampling), RandomStream(3));
      std::int64_t next = 0;
      for (const std::size_t length : lengths) {
        replay.insert(segment(length, next));
        next += static_cast<std::int64_t>(length);
      }
      for (const std::size_t batch_size : {1, 7, 256}) {
        for (const double rate : drawn(replay, next, batch_size, 4'000'000)) {
          ASSERT_NEAR(rate, 1.0, 0.01) << batch_size << " steps in a batch, " << lengths.size() << " segments";
        }
      }
    }
  }
}

// The lengths of a real run: most segments as long as they may be, some cut short by the end of their episode.
TEST(SamplingRates, EveryTransitionOfLongSegmentsIsEquallyLikely) {
  for (const std::vector<std::size_t>& lengths : {std::vector<std::size_t>{64}, {64, 8, 17, 1}}) {
    ReplayBuffer replay({256, 64, plain_transition(2, 1)}, RandomStream(5));
    std::int64_t next = 0;
    for (const std::size_t length : lengths) {
      Segment s(64, plain_transition(2, 1));
      s.length = length;
      s.sequence = static_cast<std::uint64_t>(next);
      for (std::size_t t = 0; t < length; ++t) s.version()[t] = next++;
      replay.insert(s);
    }
    for (const std::size_t batch_size : {16, 32, 256}) {
      const std::vector<double> rates = drawn(replay, next, batch_size, 10'000'000);
      for (std::size_t i = 0; i < rates.size(); ++i) {
        EXPECT_NEAR(rates[i], 1.0, 0.01) << "step " << i << " of " << next << ", " << batch_size << " in a batch";
      }
    }
  }
}

// Advantages are recomputed on runs of steps: a batch may cut a segment at its two ends alone.
TEST(ReplayBuffer, AllButTheFirstAndTheLastOfABatchAreWholeSegments) {
  ReplayBuffer replay(shape(64), RandomStream(3));
  for (std::int64_t i = 0; i < 8; ++i) replay.insert(segment(8, 8 * i));
  Batch batch(40, plain_transition(2, 1));
  for (int i = 0; i < 100; ++i) {
    replay.sample(batch);
    expect_consistent(batch);
    for (std::size_t w = 0; w < batch.stretches.size(); ++w) {
      const std::int64_t first = batch.version()[batch.stretches[w].begin];
      if (w > 0) {
        EXPECT_EQ(first % 8, 0);
      }
      if (w + 1 < batch.stretches.size()) {
        EXPECT_EQ((first + static_cast<std::int64_t>(batch.stretches[w].length)) % 8, 0);
      }
    }
  }
}

TEST(ReplayBuffer, EpochsAreUniformOverTransitions) {
  ReplayBuffer replay(shape(64, Sampling::kEpochs), RandomStream(3));
  std::int64_t next = 0;
  for (const std::size_t length : {8, 1, 3, 8, 2, 6, 4}) {
    replay.insert(segment(length, next));
    next += static_cast<std::int64_t>(length);
  }
  for (const double rate : drawn(replay, next, 128, 4'000'000)) EXPECT_NEAR(rate, 1.0, 0.01);
}

TEST(ReplayBuffer, AnEpochVisitsEveryTransitionOnce) {
  ReplayBuffer replay(shape(32, Sampling::kEpochs), RandomStream(3));
  for (std::int64_t i = 0; i < 4; ++i) replay.insert(segment(8, 8 * i));
  Batch batch(8, plain_transition(2, 1));
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::map<std::int64_t, int> seen;
    for (int i = 0; i < 4; ++i) {
      replay.sample(batch);
      for (const std::int64_t v : batch.version()) ++seen[v];
    }
    EXPECT_EQ(seen.size(), 32u);
  }
  // A new rollout begins a new pass over itself alone.
  for (std::int64_t i = 4; i < 8; ++i) replay.insert(segment(8, 8 * i));
  replay.sample(batch);
  for (const std::int64_t v : batch.version()) EXPECT_GE(v, 32);
}

TEST(ReplayBuffer, GoesOnIdenticallyAfterSaveAndLoad) {
  for (const Sampling sampling : {Sampling::kSegments, Sampling::kTransitions, Sampling::kEpochs}) {
    ReplayBuffer one(shape(50, sampling), RandomStream(4));
    std::int64_t next = 0;
    Batch a(16, plain_transition(2, 1)), b(16, plain_transition(2, 1));
    for (int i = 0; i < 20; ++i, next += 5) one.insert(segment(5, next));
    one.sample(a);
    ByteWriter out;
    one.save(out);
    ReplayBuffer two(shape(50, sampling), RandomStream(99));
    ByteReader in(out.bytes());
    two.load(in);
    EXPECT_EQ(in.left(), 0u);
    EXPECT_EQ(one.fingerprint(), two.fingerprint());
    for (int i = 0; i < 20; ++i, next += 5) {
      one.sample(a);
      two.sample(b);
      EXPECT_TRUE(std::ranges::equal(a.version(), b.version()));
      one.insert(segment(5, next));
      two.insert(segment(5, next));
    }
    EXPECT_EQ(one.fingerprint(), two.fingerprint());
  }
}

std::string saved(const ReplayBuffer& replay) {
  return bytes_of([&](ByteWriter& out) { replay.save(out); });
}

TEST(ReplayBuffer, GrowsInPlaceAndKeepsWhatItHolds) {
  ReplayBuffer replay(shape(400), RandomStream(6));
  std::int64_t next = 0;
  for (int i = 0; i < 90; ++i, next += 7) replay.insert(segment(7, next));  // around the end of the ring
  for (int i = 0; i < 900; ++i) {
    replay.insert(segment(1, next++));  // two rows a step: it must grow
    if (i % 50 == 0) {
      ReplayBuffer copy(shape(400), RandomStream(1));
      const std::string bytes = saved(replay);
      ByteReader in(bytes);
      copy.load(in);
      EXPECT_EQ(saved(copy), bytes);
    }
  }
  Batch batch(64, plain_transition(2, 1));
  ASSERT_TRUE(replay.sample(batch));
  expect_consistent(batch);
}

TEST(ReplayBuffer, ASnapshotIsOfTheMomentItWasTaken) {
  for (const Sampling sampling : {Sampling::kSegments, Sampling::kEpochs}) {
    ReplayBuffer replay(shape(200, sampling), RandomStream(4));
    Batch batch(16, plain_transition(2, 1));
    std::int64_t next = 0;
    for (int i = 0; i < 60; ++i, next += 5) replay.insert(segment(5, next));
    replay.sample(batch);
    const std::string then = saved(replay);
    for (const int inserts : {0, 10, 300}) {  // none, some and all of what it held are evicted before it is written
      ReplayBuffer other(shape(200, sampling), RandomStream(1));
      ByteReader in(then);
      other.load(in);
      const auto snapshot = other.snapshot();
      for (int i = 0; i < inserts; ++i) other.insert(segment(1 + i % 8, 1000 + i));
      other.sample(batch);
      ByteWriter out;
      snapshot->save(out);
      EXPECT_EQ(out.bytes(), then);
    }
  }
}

// 64 segments of 262 kB: more than may be kept, so that the one who inserts has to wait for the one who writes.
TEST(ReplayBuffer, ThreadsThatInsertWaitForASnapshotInsteadOfKeepingAllOfIt) {
  constexpr std::size_t kWidth = 1024, kSteps = 64, kSegments = 64;
  ReplayBuffer replay({kSteps * kSegments, kSteps, plain_transition(kWidth, 1)}, RandomStream(4));
  Segment s(kSteps, plain_transition(kWidth, 1));
  s.length = kSteps;
  const auto insert_all = [&](float value) {
    for (std::size_t i = 0; i < kSegments; ++i) {
      s.observation()[0] = value + static_cast<float>(i);
      ++s.sequence;
      EXPECT_TRUE(replay.insert(s));
    }
  };
  insert_all(0);
  const std::uint32_t then = replay.fingerprint();
  auto snapshot = replay.snapshot();
  std::jthread actor([&] { insert_all(1000); });
  std::size_t most = 0;
  EXPECT_EQ(checksum_of([&](ByteWriter& out) {
              snapshot->save(out);
              most = std::max(most, snapshot->bytes_kept());
            }),
            then);
  actor.join();
  EXPECT_NE(replay.fingerprint(), then);

  // One that is given up lets them go on.
  snapshot.reset();
  snapshot = replay.snapshot();
  actor = std::jthread([&] { insert_all(2000); });
  while (snapshot->bytes_kept() < ReplaySnapshot::kMostBytesKept) std::this_thread::yield();
  most = std::max(most, snapshot->bytes_kept());
  snapshot.reset();
  actor.join();
  EXPECT_LT(most, ReplaySnapshot::kMostBytesKept + 300'000);
  EXPECT_EQ(replay.size(), kSteps * kSegments);
}

TEST(ReplayBuffer, DamagedStateIsRefused) {
  ReplayBuffer replay(shape(50), RandomStream(4));
  replay.insert(segment(8, 0));
  ByteWriter out;
  replay.save(out);
  for (std::size_t cut = 0; cut < out.bytes().size(); cut += 7) {
    ByteReader in(std::string_view(out.bytes()).substr(0, cut));
    EXPECT_THROW(replay.load(in), Error);
  }
}

TEST(ReplayBuffer, ThreadsMayInsertAndSampleTogether) {
  ReplayBuffer replay(shape(200), RandomStream(5));
  replay.insert(segment(8, 0));
  std::vector<std::thread> writers;
  for (std::int64_t w = 0; w < 2; ++w) {
    writers.emplace_back([&replay, w] {
      for (std::int64_t i = 0; i < 300; ++i) {
        Segment s = segment(1 + static_cast<std::size_t>(i % 8), 10000 * w + i);
        s.actor = static_cast<std::uint64_t>(w + 1);
        EXPECT_TRUE(replay.insert(s));
      }
    });
  }
  Batch batch(32, plain_transition(2, 1));
  for (int i = 0; i < 300; ++i) {
    replay.sample(batch);
    expect_consistent(batch);
  }
  for (std::thread& t : writers) t.join();
  EXPECT_EQ(replay.evicted() + replay.size(), replay.inserted());
}

Segment numbered(std::uint64_t actor, std::uint64_t incarnation, std::uint64_t sequence, std::size_t length = 4) {
  Segment s = segment(length, 0);
  s.actor = actor;
  s.incarnation = incarnation;
  s.sequence = sequence;
  return s;
}

TEST(ReplayBuffer, TakesASegmentOnce) {
  ReplayBuffer replay(shape(50), RandomStream(4));
  EXPECT_TRUE(replay.insert(numbered(7, 0, 0)));
  const std::uint32_t then = replay.fingerprint();
  EXPECT_FALSE(replay.insert(numbered(7, 0, 0)));
  EXPECT_EQ(replay.fingerprint(), then) << "a refused segment changes nothing";
  EXPECT_TRUE(replay.insert(numbered(7, 0, 5))) << "numbers may be left out: rejected segments have one too";
  EXPECT_FALSE(replay.insert(numbered(7, 0, 3))) << "out of order";
  EXPECT_TRUE(replay.insert(numbered(3, 0, 0))) << "another actor";
  EXPECT_TRUE(replay.insert(numbered(7, 1, 0))) << "a new incarnation begins anew";
  EXPECT_FALSE(replay.insert(numbered(7, 0, 9))) << "of the incarnation before";
  EXPECT_EQ(replay.duplicates(), 3u);
  EXPECT_EQ(replay.inserted(), 16u);
}

TEST(ReplayBuffer, KnowsWhatItTookAfterEvictionAndAfterALoad) {
  ReplayBuffer replay(shape(50), RandomStream(4));
  EXPECT_TRUE(replay.insert(numbered(7, 2, 5)));
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_TRUE(replay.insert(numbered(8, 0, i)));
  EXPECT_FALSE(replay.insert(numbered(7, 2, 5))) << "evicted long ago";
  ReplayBuffer loaded(shape(50), RandomStream(1));
  const std::string bytes = saved(replay);
  ByteReader in(bytes);
  loaded.load(in);
  EXPECT_FALSE(loaded.insert(numbered(7, 2, 5)));
  EXPECT_FALSE(loaded.insert(numbered(7, 1, 6)));
  EXPECT_FALSE(loaded.insert(numbered(8, 0, 19)));
  EXPECT_TRUE(loaded.insert(numbered(8, 0, 20)));
  EXPECT_TRUE(loaded.insert(numbered(7, 2, 6)));
}

TEST(ReplayBuffer, MarksThatDoNotFitItsSegmentsAreRefused) {
  ReplayBuffer replay(shape(50), RandomStream(4));
  for (const std::uint64_t actor : {3, 5}) EXPECT_TRUE(replay.insert(numbered(actor, 0, 2)));
  const std::string bytes = saved(replay);
  // The end: two marks of 24 bytes, then the empty pass.
  const std::size_t marks = bytes.size() - 24 - 48;
  for (const auto& [at, value] : {std::pair<std::size_t, char>{16, 1}, {0, 4}, {24, 3}, {24, 2}}) {
    std::string damaged = bytes;
    damaged[marks + at] = value;
    ByteReader in(damaged);
    EXPECT_THROW(replay.load(in), Error) << at;
    EXPECT_EQ(replay.size(), 0u);
  }
  ByteReader in(bytes);
  replay.load(in);
  EXPECT_EQ(replay.size(), 8u);
}

TEST(Segment, NumbersThatAreNotFiniteAreSeen) {
  Segment s = segment(4, 0);
  EXPECT_TRUE(s.finite());
  s.observation()[2 * 4 + 1] = std::numeric_limits<float>::quiet_NaN();  // the final observation
  EXPECT_FALSE(s.finite());
  s = segment(4, 0);
  s.reward()[3] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(s.finite());
  s = segment(4, 0);
  s.reward()[4] = std::numeric_limits<float>::infinity();  // past the end: not part of it
  EXPECT_TRUE(s.finite());
}

}  // namespace
}  // namespace gipo
