#include "gipo/stats/sort_keys.h"

#include <array>
#include <utility>

#include "gipo/core/error.h"

namespace gipo {

void sort_keys(std::span<std::uint64_t> keys, std::span<std::uint64_t> scratch) {
  GIPO_CHECK(keys.size() == scratch.size());
  if (keys.empty()) return;
  // How often each value of each of the four bytes occurs.
  std::array<std::array<std::uint32_t, 256>, 4> counts{};
  for (const std::uint64_t key : keys) {
    ++counts[0][(key >> 32) & 0xff];
    ++counts[1][(key >> 40) & 0xff];
    ++counts[2][(key >> 48) & 0xff];
    ++counts[3][key >> 56];
  }
  std::span<std::uint64_t> from = keys, to = scratch;
  for (std::size_t byte = 0; byte < 4; ++byte) {
    const auto digit = [byte](std::uint64_t key) { return (key >> (32 + 8 * byte)) & 0xff; };
    if (counts[byte][digit(keys.front())] == keys.size()) continue;  // all alike: numbers are small as a rule
    std::uint32_t at = 0;
    for (std::uint32_t& count : counts[byte]) at += std::exchange(count, at);
    for (const std::uint64_t key : from) to[counts[byte][digit(key)]++] = key;
    std::swap(from, to);
  }
  if (from.data() != keys.data()) std::copy(from.begin(), from.end(), keys.begin());
}

}  // namespace gipo
