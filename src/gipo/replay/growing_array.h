#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace gipo {

// A large array that grows in place: a vector would hold the old values and the new at once. realloc moves pages of
// memory instead of copying what is in them.
template <class T>
class GrowingArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  GrowingArray() = default;
  ~GrowingArray() { std::free(data_); }
  GrowingArray(const GrowingArray&) = delete;
  GrowingArray& operator=(const GrowingArray&) = delete;
  GrowingArray(GrowingArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

  // New values are zero, and written now, so that memory that is not there is missed at once.
  void grow(std::size_t size) {
    if (size <= size_) return;
    void* const larger = size > max_size() ? nullptr : std::realloc(data_, size * sizeof(T));
    if (!larger) throw std::bad_alloc();
    data_ = static_cast<T*>(larger);
    std::memset(static_cast<void*>(data_ + size_), 0, (size - size_) * sizeof(T));
    size_ = size;
  }

  // Value n comes to the front and what was before it to the end, in place and a block at a time.
  void rotate(std::size_t n) {
    auto* at = reinterpret_cast<char*>(data_);
    // The first `left` bytes and the `right` ones behind them change places: of the longer, a part as long as the other
    // is done after each round.
    std::size_t left = n * sizeof(T), right = (size_ - n) * sizeof(T);
    while (left > 0 && right > 0) {
      const std::size_t done = std::min(left, right);
      swap_bytes(at, at + left, done);
      at += done;
      (left <= right ? right : left) -= done;
    }
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }

 private:
  static void swap_bytes(char* one, char* other, std::size_t size) {
    char block[4096];
    for (std::size_t at = 0; at < size; at += sizeof block) {
      const std::size_t n = std::min(sizeof block, size - at);
      std::memcpy(block, one + at, n);
      std::memcpy(one + at, other + at, n);
      std::memcpy(other + at, block, n);
    }
  }
  static constexpr std::size_t max_size() { return static_cast<std::size_t>(-1) / 2 / sizeof(T); }

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace gipo
