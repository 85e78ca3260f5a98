#include "gipo/core/allocations.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace gipo {

Allocations allocations;

namespace {

void note(std::size_t size) {
  ++allocations.count;
  std::size_t largest = allocations.largest;
  while (size > largest && !allocations.largest.compare_exchange_weak(largest, size)) {
  }
}

void* counted(std::size_t size, std::size_t alignment) {
  note(size);
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* p = alignment > alignof(std::max_align_t) ? std::aligned_alloc(alignment, rounded) : std::malloc(size);
  if (p == nullptr && size > 0) throw std::bad_alloc();
  return p;
}

// Not inlined: g++ would see free() take what operator new gave, and warn.
[[gnu::noinline]] void release(void* p) { std::free(p); }

}  // namespace
}  // namespace gipo

void* operator new(std::size_t size) { return gipo::counted(size == 0 ? 1 : size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return gipo::counted(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  gipo::note(size);
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* p) noexcept { gipo::release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { gipo::release(p); }
void operator delete(void* p, std::size_t) noexcept { gipo::release(p); }
void operator delete(void* p, std::align_val_t) noexcept { gipo::release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { gipo::release(p); }

namespace gipo {
namespace {

TEST(Allocations, AreCountedAndTheLargestIsKept) {
  allocations.reset();
  const std::vector<char> large(5000);
  const auto small = std::make_unique<int>(1);
  EXPECT_EQ(allocations.count, 2);
  EXPECT_EQ(allocations.largest, 5000u);
}

}  // namespace
}  // namespace gipo
