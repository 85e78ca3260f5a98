#pragma once

#include <atomic>
#include <cstddef>

namespace gipo {

// What operator new was asked for in this program, by all threads. For tests: allocations_test.cc, which is linked into
// the unit tests alone, puts the counting operators in place.
struct Allocations {
  std::atomic<long> count{0};
  std::atomic<std::size_t> largest{0};  // bytes

  void reset() { count = 0, largest = 0; }
};
extern Allocations allocations;

}  // namespace gipo
