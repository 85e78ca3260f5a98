#include "gipo/stats/sort_floats.h"

#include <array>

#include "gipo/core/error.h"

namespace gipo {

void sort_float_keys(std::span<std::uint64_t> keys, std::span<std::uint64_t> scratch) {
  GIPO_CHECK(keys.size() == scratch.size());
  // How often each value of each of the float's four bytes occurs.
  std::array<std::array<std::uint32_t, 256>, 4> counts{};
  for (const std::uint64_t key : keys) {
    for (std::size_t byte = 0; byte < 4; ++byte) ++counts[byte][(key >> (32 + 8 * byte)) & 0xff];
  }
  std::span<std::uint64_t> from = keys, to = scratch;
  for (std::size_t byte = 0; byte < 4; ++byte) {
    std::uint32_t at = 0;
    for (std::uint32_t& count : counts[byte]) {
      const std::uint32_t next = at + count;
      count = at;
      at = next;
    }
    for (const std::uint64_t key : from) to[counts[byte][(key >> (32 + 8 * byte)) & 0xff]++] = key;
    std::swap(from, to);
  }
  // Four passes: the result is back in `keys`.
}

}  // namespace gipo
