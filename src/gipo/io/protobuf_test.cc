#include "gipo/io/protobuf.h"

#include <gtest/gtest.h>

namespace gipo::protobuf {
namespace {

template <class T>
std::string encoded(std::uint32_t field, T value) {
  std::string out;
  append(out, field, value);
  return out;
}

// The examples of the format's own description.
TEST(Protobuf, NumbersAndTextAsTheFormatDescribesThem) {
  EXPECT_EQ(encoded(1, 150), "\x08\x96\x01");
  EXPECT_EQ(encoded(2, "testing"), std::string("\x12\x07testing"));
  EXPECT_EQ(encoded(3, encoded(1, 150)), "\x1a\x03\x08\x96\x01");
}

TEST(Protobuf, NegativeNumbersTakeTenBytes) {
  EXPECT_EQ(encoded(1, -2), "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  EXPECT_EQ(encoded(1, std::int64_t{-2}), encoded(1, -2));
}

TEST(Protobuf, FloatsAndDoublesAreFixed) {
  EXPECT_EQ(encoded(5, 1.0f), std::string("\x2d\x00\x00\x80\x3f", 5));
  EXPECT_EQ(encoded(1, 1.0), std::string("\x09\x00\x00\x00\x00\x00\x00\xf0\x3f", 9));
}

TEST(Protobuf, FieldNumbersAboveFifteenTakeTwoBytes) { EXPECT_EQ(encoded(20, 2), "\xa0\x01\x02"); }

}  // namespace
}  // namespace gipo::protobuf
