#include "gipo/core/bytes.h"

#include "gipo/core/error.h"

namespace gipo {

const char* ByteReader::take(std::size_t size) {
  if (size > left()) {
    throw Error("saved state ends early: " + std::to_string(size) + " bytes wanted, " + std::to_string(left()) +
                " left");
  }
  const char* p = bytes_.data() + at_;
  at_ += size;
  return p;
}

std::size_t ByteReader::length(std::size_t element_size) {
  const auto n = value<std::uint64_t>();
  if (n > left() / element_size) {
    throw Error("saved state holds a length of " + std::to_string(n) + " with " + std::to_string(left()) +
                " bytes left");
  }
  return static_cast<std::size_t>(n);
}

void ByteReader::expect_length(std::size_t found, std::size_t expected) {
  if (found != expected) {
    throw Error("saved state holds an array of " + std::to_string(found) + " where " + std::to_string(expected) +
                " belong");
  }
}

}  // namespace gipo
