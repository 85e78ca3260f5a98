#include "gipo/io/bytes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gipo/core/error.h"
#include "gipo/io/checksum.h"

namespace gipo {
namespace {

std::string example() {
  ByteWriter out;
  out.value<std::int64_t>(-5);
  out.value(3.25);
  out.value(true);
  out.array(std::vector<float>{1, 2, 3});
  out.array(std::vector<double>{});
  out.text(std::string("a\0b", 3));
  out.text("");
  out.array(std::vector<std::uint64_t>{7, ~0ull});
  return out.bytes();
}

// Reads all of it, as it was written.
void read(ByteReader& in) {
  EXPECT_EQ(in.value<std::int64_t>(), -5);
  EXPECT_EQ(in.value<double>(), 3.25);
  EXPECT_EQ(in.value<bool>(), true);
  EXPECT_EQ(in.array<float>(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(in.array<double>(), std::vector<double>{});
  EXPECT_EQ(in.text(), std::string("a\0b", 3));
  EXPECT_EQ(in.text(), "");
  std::vector<std::uint64_t> known(2);
  in.array_into(std::span<std::uint64_t>(known));
  EXPECT_EQ(known, (std::vector<std::uint64_t>{7, ~0ull}));
}

TEST(Bytes, RoundTrip) {
  const std::string bytes = example();
  ByteReader in(bytes);
  read(in);
  EXPECT_EQ(in.left(), 0u);
}

TEST(Bytes, LayoutIsLittleEndianWithoutPadding) {
  ByteWriter out;
  out.value<std::uint8_t>(1);
  out.value<std::uint32_t>(0x01020304);
  out.array(std::vector<std::uint16_t>{0x0a0b});
  EXPECT_EQ(out.bytes(), std::string("\x01\x04\x03\x02\x01\x01\0\0\0\0\0\0\0\x0b\x0a", 15));
  out.take();
  EXPECT_TRUE(out.bytes().empty());
}

TEST(Bytes, NonFiniteValuesKeepTheirBits) {
  ByteWriter out;
  out.value(std::numeric_limits<double>::infinity());
  out.value(std::nan(""));
  out.value(-0.0);
  ByteReader in(out.bytes());
  EXPECT_EQ(in.value<double>(), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(in.value<double>()));
  EXPECT_TRUE(std::signbit(in.value<double>()));
}

TEST(Bytes, EveryTruncationThrowsError) {
  const std::string bytes = example();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // A copy of exactly this size, so that a sanitizer sees a read beyond it.
    const std::vector<char> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    ByteReader in(std::string_view(cut.data(), cut.size()));
    EXPECT_THROW(read(in), Error) << size << " of " << bytes.size() << " bytes";
  }
}

TEST(Bytes, HugeLengthThrowsBeforeAnythingIsAllocated) {
  // 2^61 + 1 doubles: their size in bytes does not fit 64 bits and wraps to 8, which is there.
  for (const std::uint64_t length : {~0ull, 1ull << 40, (1ull << 61) + 1, 2ull}) {
    ByteWriter out;
    out.value(length);
    out.value(1.0);
    EXPECT_THROW(ByteReader(out.bytes()).array<double>(), Error) << length;
    std::vector<double> known(1);
    EXPECT_THROW(ByteReader(out.bytes()).array_into(std::span<double>(known)), Error) << length;
    if (length > 8) {
      EXPECT_THROW(ByteReader(out.bytes()).text(), Error) << length;
    }
  }
}

TEST(Bytes, ArrayOfAnotherLengthIsRefused) {
  ByteWriter out;
  out.array(std::vector<float>{1, 2, 3});
  for (const std::size_t size : {0u, 2u, 4u}) {
    std::vector<float> other(size);
    try {
      ByteReader(out.bytes()).array_into(std::span<float>(other));
      FAIL() << "accepted";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("an array of 3 where " + std::to_string(size)), std::string::npos)
          << e.what();
    }
  }
}

TEST(Bytes, ASinkGetsTheSameBytesInOrder) {
  for (const std::size_t size : {0u, 1u, 1000u, 300'000u, 900'000u}) {
    const std::vector<char> large(size, 'x');
    const auto save = [&](ByteWriter& out) {
      for (int i = 0; i < 3; ++i) {
        out.value(i);
        out.array(large);
        out.text("between");
      }
    };
    ByteWriter whole;
    save(whole);
    std::string parts;
    std::size_t longest = 0;
    ByteWriter out([&](std::string_view block) {
      parts += block;
      longest = std::max(longest, block.size());
    });
    save(out);
    out.flush();
    EXPECT_EQ(parts, whole.bytes());
    EXPECT_LE(longest, std::max<std::size_t>(size, 256 * 1024)) << "nothing is collected beyond a block";
    EXPECT_EQ(bytes_of(save), whole.bytes());
    EXPECT_EQ(bytes_of(save).capacity(), std::max(bytes_of(save).size(), std::string().capacity()));
    EXPECT_EQ(checksum_of(save), crc32c(whole.bytes()));
  }
}

TEST(Bytes, ASourceIsReadLikeAString) {
  ByteWriter out;
  for (int i = 0; i < 40'000; ++i) out.value(i);
  const std::vector<double> large(100'000, 0.5);
  out.array(large);
  out.text("end");
  std::size_t at = 0;
  ByteReader in(out.bytes().size(), [&](char* to, std::size_t size) {
    ASSERT_LE(at + size, out.bytes().size());
    out.bytes().copy(to, size, at);
    at += size;
  });
  for (int i = 0; i < 40'000; ++i) ASSERT_EQ(in.value<int>(), i);
  EXPECT_EQ(in.array<double>(), large);
  EXPECT_EQ(in.text(), "end");
  EXPECT_EQ(in.left(), 0u);
  EXPECT_THROW(in.value<char>(), Error);
}

}  // namespace
}  // namespace gipo
