#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace gipo {

static_assert(std::endian::native == std::endian::little, "saved state is little-endian");

// Appends plain values to a byte string, or hands them on in blocks to a file or a checksum. Every stateful object
// writes itself with save(ByteWriter&) and reads itself back with load(ByteReader&), in the same order.
class ByteWriter {
 public:
  using Sink = std::function<void(std::string_view)>;

  ByteWriter() = default;  // into bytes()
  // Into the sink, in order; nothing is kept beyond a block. flush() hands over the last one.
  explicit ByteWriter(Sink sink) : sink_(std::move(sink)) {}

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
  // What another writer wrote.
  void append(std::string_view bytes) { raw(bytes.data(), bytes.size()); }
  void append(std::span<const std::byte> bytes) { raw(bytes.data(), bytes.size()); }

  const std::string& bytes() const { return bytes_; }  // not yet handed over
  std::string take() { return std::exchange(bytes_, {}); }
  void reserve(std::size_t size) { bytes_.reserve(size); }
  void clear() { bytes_.clear(); }
  void flush();

 private:
  void raw(const void* data, std::size_t size) {
    if (sink_) return pass_on({static_cast<const char*>(data), size});
    bytes_.append(static_cast<const char*>(data), size);
  }
  void pass_on(std::string_view bytes);

  std::string bytes_;
  Sink sink_;
};

// What save(ByteWriter&) writes, in a string that is no larger; save is called twice, once to count.
std::string bytes_of(const std::function<void(ByteWriter&)>& save);
// CRC-32C of what it writes, without a copy of it.
std::uint32_t checksum_of(const std::function<void(ByteWriter&)>& save);

// Reads what ByteWriter wrote. Every length is checked against what is left before anything is allocated; damaged
// input throws gipo::Error.
class ByteReader {
 public:
  using Source = std::function<void(char* out, std::size_t size)>;  // the next bytes, exactly so many

  explicit ByteReader(std::string_view bytes) : bytes_(bytes), left_(bytes.size()) {}
  // So many bytes from a source, of which a block is held at a time.
  ByteReader(std::size_t size, Source source) : left_(size), source_(std::move(source)) {}

  template <class T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T v;
    raw(&v, sizeof v);
    return v;
  }
  // An array whose length the reader does not know.
  template <class T>
  std::vector<T> array() {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t n = length(sizeof(T));
    std::vector<T> v(n);
    raw(v.data(), n * sizeof(T));
    return v;
  }
  // An array whose length must be out.size().
  template <class T>
  void array_into(std::span<T> out) {
    static_assert(std::is_trivially_copyable_v<T>);
    expect_length(length(sizeof(T)), out.size());
    raw(out.data(), out.size_bytes());
  }
  // As many bytes as there is room for, without a length before them.
  void bytes_into(std::span<std::byte> out) { raw(out.data(), out.size()); }
  void bytes_into(std::span<char> out) { raw(out.data(), out.size()); }
  std::string text() {
    std::string s(length(1), '\0');
    raw(s.data(), s.size());
    return s;
  }

  std::size_t left() const { return left_; }

 private:
  void raw(void* out, std::size_t size) {
    if (size > bytes_.size()) return fetch(static_cast<char*>(out), size);
    if (size > 0) std::memcpy(out, bytes_.data(), size);
    bytes_.remove_prefix(size);
    left_ -= size;
  }
  void fetch(char* out, std::size_t size);
  std::size_t length(std::size_t element_size);
  static void expect_length(std::size_t found, std::size_t expected);

  std::string_view bytes_;  // in hand
  std::size_t left_;        // these, and what the source still has
  Source source_;
  std::string block_;
};

}  // namespace gipo
