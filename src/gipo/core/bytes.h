#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace gipo {

static_assert(std::endian::native == std::endian::little, "saved state is little-endian");

// Appends plain values to a byte string. Every stateful object writes itself with save(ByteWriter&) and reads itself
// back with load(ByteReader&), in the same order.
class ByteWriter {
 public:
  template <class T>
  void value(const T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    raw(&v, sizeof v);
  }
  template <class T>
  void array(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    value<std::uint64_t>(values.size());
    raw(values.data(), values.size_bytes());
  }
  template <class T, class Allocator>
  void array(const std::vector<T, Allocator>& values) {
    array(std::span<const T>(values));
  }
  void text(std::string_view s) { array(std::span<const char>(s.data(), s.size())); }

  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::exchange(bytes_, {}); }
  void reserve(std::size_t size) { bytes_.reserve(size); }

 private:
  void raw(const void* data, std::size_t size) { bytes_.append(static_cast<const char*>(data), size); }
  std::string bytes_;
};

// Reads what ByteWriter wrote. Every length is checked against what is left before anything is allocated; damaged
// input throws gipo::Error.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T v;
    std::memcpy(&v, take(sizeof v), sizeof v);
    return v;
  }
  // An array whose length the reader does not know.
  template <class T>
  std::vector<T> array() {
    const std::size_t n = length(sizeof(T));
    std::vector<T> v(n);
    if (n > 0) std::memcpy(v.data(), take(n * sizeof(T)), n * sizeof(T));
    return v;
  }
  // An array whose length must be out.size().
  template <class T>
  void array_into(std::span<T> out) {
    expect_length(length(sizeof(T)), out.size());
    if (!out.empty()) std::memcpy(out.data(), take(out.size_bytes()), out.size_bytes());
  }
  std::string text() {
    const std::size_t n = length(1);
    return std::string(take(n), n);
  }

  std::size_t left() const { return bytes_.size() - at_; }

 private:
  const char* take(std::size_t size);
  std::size_t length(std::size_t element_size);
  static void expect_length(std::size_t found, std::size_t expected);

  std::string_view bytes_;
  std::size_t at_ = 0;
};

}  // namespace gipo
