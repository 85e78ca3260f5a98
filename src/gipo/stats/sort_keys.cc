#include "gipo/stats/sort_keys.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "gipo/core/error.h"

namespace gipo {

void sort_keys(std::span<std::uint64_t> keys, std::span<std::uint64_t> scratch) {
  GIPO_CHECK(keys.size() == scratch.size());
  if (keys.empty()) return;
  // The two bytes from the highest bit in which the keys differ: of numbers, which are small as a rule, all there is.
  std::uint64_t differ = 0;
  for (const std::uint64_t key : keys) differ |= key ^ keys.front();
  const unsigned low = std::max<unsigned>(16, static_cast<unsigned>(std::bit_width(differ))) - 16, high = low + 8;
  std::array<std::array<std::uint32_t, 256>, 2> places{};
  for (const std::uint64_t key : keys) {
    ++places[0][(key >> low) & 0xff];
    ++places[1][(key >> high) & 0xff];
  }
  std::uint32_t at[2] = {};
  for (std::size_t value = 0; value < 256; ++value) {
    at[0] += std::exchange(places[0][value], at[0]);
    at[1] += std::exchange(places[1][value], at[1]);
  }
  for (const std::uint64_t key : keys) scratch[places[0][(key >> low) & 0xff]++] = key;
  for (const std::uint64_t key : scratch) keys[places[1][(key >> high) & 0xff]++] = key;
  // Few are alike in both bytes.
  for (auto begin = keys.begin(), end = begin; begin != keys.end(); begin = end) {
    do ++end;
    while (end != keys.end() && *end >> low == *begin >> low);
    if (end - begin > 1) std::sort(begin, end);
  }
}

}  // namespace gipo
