#include "gipo/core/random.h"

#include <Random123/philox.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"

namespace gipo {
namespace {

// The first vector of Random123's own known answers for philox4x32, 10 rounds.
TEST(Random, PublishedKnownAnswer) {
  RandomStream stream(0);
  for (const std::uint32_t word : {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u})
    EXPECT_EQ(stream.next_u32(), word);
}

TEST(Random, WordsAreThoseOfRandom123) {
  const std::uint64_t key = 0x0123456789abcdefull;
  RandomStream stream(key);
  for (std::uint32_t block = 0; block < 100; ++block) {
    const auto words = r123::Philox4x32()({{block, 0, 0, 0}}, {{0x89abcdefu, 0x01234567u}});
    for (std::size_t i = 0; i < 4; ++i) ASSERT_EQ(stream.next_u32(), words[i]) << "block " << block << " word " << i;
  }
}

TEST(Random, CounterGoesOnPast32Bits) {
  // A stream that stands at the last block whose index has 32 bits.
  ByteWriter out;
  out.value<std::uint64_t>(7);
  out.value<std::uint64_t>(0xffffffffull * 4 + 3);
  RandomStream stream;
  ByteReader in(out.bytes());
  stream.load(in);
  EXPECT_EQ(stream.next_u32(), (r123::Philox4x32()({{0xffffffffu, 0, 0, 0}}, {{7, 0}})[3]));
  EXPECT_EQ(stream.next_u32(), (r123::Philox4x32()({{0, 1, 0, 0}}, {{7, 0}})[0]));
}

TEST(Random, SixtyFourBitsAreTwoWordsLowFirst) {
  RandomStream words(5), wide(5);
  for (int i = 0; i < 10; ++i) {
    const std::uint64_t low = words.next_u32(), high = words.next_u32();
    EXPECT_EQ(wide.next_u64(), low | (high << 32));
  }
}

TEST(Random, UniformBoundsAndMoments) {
  RandomStream stream = RandomStream::derive(1, "test");
  const int n = 200000;
  double sum = 0, square = 0, least = 1, most = 0;
  for (int i = 0; i < n; ++i) {
    const double u = stream.uniform();
    sum += u, square += u * u, least = std::min(least, u), most = std::max(most, u);
  }
  EXPECT_GE(least, 0.0);
  EXPECT_LT(most, 1.0);
  EXPECT_LT(least, 1e-4);
  EXPECT_GT(most, 1 - 1e-4);
  // Five standard errors.
  EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(square / n, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / n));
}

TEST(Random, UniformRangeIsScaled) {
  RandomStream unit(3), scaled(3);
  for (int i = 0; i < 1000; ++i) {
    const double v = scaled.uniform(-2, 6);
    EXPECT_EQ(v, -2 + 8 * unit.uniform());
    EXPECT_GE(v, -2.0);
    EXPECT_LT(v, 6.0);
  }
}

TEST(Random, NormalMoments) {
  RandomStream stream = RandomStream::derive(2, "test");
  const int n = 200000;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, previous = 0, product = 0;
  for (int i = 0; i < n; ++i) {
    const double x = stream.normal();
    ASSERT_TRUE(std::isfinite(x));
    m1 += x / n, m2 += x * x / n, m3 += x * x * x / n, m4 += x * x * x * x / n;
    product += x * previous / n;
    previous = x;
  }
  // Five standard errors: Var x = 1, x^2 = 2, x^3 = 15, x^4 = 96.
  EXPECT_NEAR(m1, 0, 5 * std::sqrt(1.0 / n));
  EXPECT_NEAR(m2, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(m3, 0, 5 * std::sqrt(15.0 / n));
  EXPECT_NEAR(m4, 3, 5 * std::sqrt(96.0 / n));
  EXPECT_NEAR(product, 0, 5 * std::sqrt(1.0 / n)) << "neighbours are correlated";
}

TEST(Random, NormalTakesTwoWideDraws) {
  RandomStream normal(9), plain(9);
  normal.normal();
  plain.next_u64(), plain.next_u64();
  EXPECT_EQ(normal.next_u64(), plain.next_u64());
}

double chi_square(const std::vector<int>& counts, double expected) {
  double sum = 0;
  for (const int c : counts) sum += (c - expected) * (c - expected) / expected;
  return sum;
}

TEST(Random, BelowIsUnbiased) {
  // The 99.99% points of chi-square with n - 1 degrees of freedom.
  for (const auto& [n, limit] : {std::pair{2, 15.2}, {6, 25.8}, {10, 33.8}}) {
    RandomStream stream = RandomStream::derive(3, "below", static_cast<std::uint64_t>(n));
    std::vector<int> counts(static_cast<std::size_t>(n));
    for (int i = 0; i < 60000; ++i) ++counts.at(stream.below(static_cast<std::uint64_t>(n)));
    EXPECT_LT(chi_square(counts, 60000.0 / n), limit) << n;
  }
}

TEST(Random, BelowIsUnbiasedWhereAModuloWouldNotBe) {
  // 2^64 mod 3*2^62 = 2^62: a bare modulo would give the first third twice the weight of the others.
  const std::uint64_t third = 1ull << 62;
  RandomStream stream = RandomStream::derive(4, "below");
  std::vector<int> counts(3);
  for (int i = 0; i < 30000; ++i) ++counts.at(stream.below(3 * third) / third);
  EXPECT_LT(chi_square(counts, 10000.0), 18.4);
}

TEST(Random, BelowTakesTheWholeRange) {
  RandomStream stream(6);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(stream.below(1), 0u);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(stream.below(8));
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_GT(stream.below(~0ull), 0u);
  EXPECT_THROW(stream.below(0), InvariantError);
}

TEST(Random, DeriveDiffersByRootPurposeAndIndex) {
  std::set<std::uint64_t> seeds;
  int made = 0;
  for (std::uint64_t root = 0; root < 20; ++root) {
    for (const char* purpose : {"env", "action", "replay", "weights", "vne", "en", "envv"}) {
      for (std::uint64_t index = 0; index < 50; ++index, ++made) seeds.insert(derive_seed(root, purpose, index));
    }
  }
  EXPECT_EQ(seeds.size(), static_cast<std::size_t>(made));
  RandomStream a = RandomStream::derive(1, "env", 2);
  EXPECT_EQ(a.next_u64(), RandomStream(derive_seed(1, "env", 2)).next_u64());
}

TEST(Random, NeighbouringSeedsShareNoBits) {
  // Every input bit reaches every output bit: about half of the 64 flip.
  double flipped = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    flipped += static_cast<double>(__builtin_popcountll(derive_seed(1, "env", i) ^ derive_seed(1, "env", i + 1)));
  }
  EXPECT_NEAR(flipped / 1000, 32, 5 * 4 / std::sqrt(1000.0));
}

TEST(Random, SavedStreamGoesOnFromTheMiddleOfABlock) {
  for (int drawn = 0; drawn < 9; ++drawn) {
    RandomStream stream = RandomStream::derive(5, "test");
    for (int i = 0; i < drawn; ++i) stream.next_u32();
    ByteWriter out;
    stream.save(out);
    RandomStream other(99);
    other.next_u32();  // holds a block of its own, which must not be used
    ByteReader in(out.bytes());
    other.load(in);
    EXPECT_EQ(in.left(), 0u);
    for (int i = 0; i < 20; ++i) ASSERT_EQ(other.next_u32(), stream.next_u32()) << drawn << " drawn";
  }
}

}  // namespace
}  // namespace gipo
