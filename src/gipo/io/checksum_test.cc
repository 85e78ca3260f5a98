#include "gipo/io/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace gipo {
namespace {

// One bit at a time: the reference that the tables must agree with.
std::uint32_t crc32c_by_bits(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

std::string counting_bytes(std::size_t size) {
  std::string s;
  for (std::size_t i = 0; i < size; ++i) s.push_back(static_cast<char>(i * 37 + 11));
  return s;
}

// Vectors of RFC 3720, appendix B.4.
TEST(Checksum, KnownVectors) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) rising.push_back(static_cast<char>(i));
  for (int i = 31; i >= 0; --i) falling.push_back(static_cast<char>(i));
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(crc32c(falling), 0x113fdb5cu);
}

TEST(Checksum, EveryLengthAndAlignmentAgreesWithTheReference) {
  const std::string bytes = counting_bytes(80);
  for (std::size_t start = 0; start < 8; ++start) {
    for (std::size_t size = 0; start + size <= bytes.size(); ++size) {
      const std::string_view part = std::string_view(bytes).substr(start, size);
      ASSERT_EQ(crc32c(part), crc32c_by_bits(part)) << start << " " << size;
    }
  }
}

TEST(Checksum, IncrementalEqualsWhole) {
  const std::string bytes = counting_bytes(61);
  const std::uint32_t whole = crc32c(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_EQ(crc32c(std::string_view(bytes).substr(cut), crc32c(std::string_view(bytes).substr(0, cut))), whole);
  }
}

TEST(Checksum, LongOnesAgreeWithTheTables) {
  const std::string bytes = counting_bytes(30'000);
  for (const std::size_t size : {511, 512, 513, 639, 640, 641, 8191, 8192, 8193, 20'001, 30'000}) {
    const std::string_view part = std::string_view(bytes).substr(bytes.size() - size);
    EXPECT_EQ(crc32c(part), crc32c_by_tables(part)) << size;
    EXPECT_EQ(crc32c(part, 0x12345678u), crc32c_by_tables(part, 0x12345678u)) << size;
  }
}

TEST(Checksum, TwoAreJoinedWithoutTheirBytes) {
  const std::string bytes = counting_bytes(10'000);
  const std::string_view all = bytes;
  for (const std::size_t cut : {0, 1, 7, 4096, 9'999, 10'000}) {
    EXPECT_EQ(crc32c_joined(crc32c(all.substr(0, cut)), crc32c(all.substr(cut)), all.size() - cut), crc32c(all)) << cut;
  }
}

TEST(Checksum, MaskedIsRotatedAndOffset) {
  const std::uint32_t crc = crc32c("foo");
  EXPECT_EQ(masked_crc32c("foo"), ((crc >> 15) | (crc << 17)) + 0xa282ead8u);
  // The length field of a 24-byte record, with which event files begin; the value is that of the tensorboard package.
  EXPECT_EQ(masked_crc32c(std::string("\x18\0\0\0\0\0\0\0", 8)), 0x224b7fa3u);
}

TEST(Checksum, InstructionAndTablesAgree) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    bytes.push_back(static_cast<char>(i * 37 + (i >> 3)));
    const auto from = static_cast<std::size_t>(i % 9);  // not at a multiple of eight either
    const std::string_view part = std::string_view(bytes).substr(std::min(from, bytes.size()));
    ASSERT_EQ(crc32c(part, 0x1234567), crc32c_by_tables(part, 0x1234567)) << i;
  }
}

}  // namespace
}  // namespace gipo
