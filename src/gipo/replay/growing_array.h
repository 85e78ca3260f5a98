#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>

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

  // New values are zero, and written now, so that memory that is not there is missed at once.
  void grow(std::size_t size) {
    if (size <= size_) return;
    void* const larger = size > max_size() ? nullptr : std::realloc(data_, size * sizeof(T));
    if (!larger) throw std::bad_alloc();
    data_ = static_cast<T*>(larger);
    for (; size_ < size; ++size_) data_[size_] = T();
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
  static constexpr std::size_t max_size() { return static_cast<std::size_t>(-1) / 2 / sizeof(T); }

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace gipo
