#include "gipo/stats/sort_keys.h"

#include <algorithm>
#include <array>
#include <utility>

#include "gipo/core/error.h"

namespace gipo {
namespace {

// Twelve powers of two below the largest magnitude are told apart, by eleven bits after the first or, where keys are few,
// by seven; what is smaller is alike.
constexpr std::uint32_t kSpan = 12u << 23;
constexpr unsigned kSpanBits = 28;  // of the distance from -kSpan
constexpr unsigned kDigits = 16;    // where the key keeps them
constexpr std::size_t kFew = 128;

std::uint32_t negative(std::uint64_t key) { return static_cast<std::uint32_t>(key >> 63) - 1; }  // all ones if so
std::uint32_t magnitude(std::uint64_t key) {
  return (static_cast<std::uint32_t>(key >> 32) ^ negative(key)) & 0x7fffffffu;
}

}  // namespace

void sort_keys(std::span<std::uint64_t> keys, std::span<std::uint64_t> scratch) {
  GIPO_CHECK(keys.size() == scratch.size());
  std::uint32_t top = 0;
  for (const std::uint64_t key : keys) top = std::max(top, magnitude(key));
  const std::uint32_t low = std::max(top, kSpan) - kSpan;

  // Two digits that rise with the float, spread over few powers of two: seldom two keys in a row have the same one, and
  // need not wait for each other's count.
  const unsigned bits = keys.size() <= kFew ? 6 : 8;
  const std::uint32_t values = 1u << bits;
  std::array<std::array<std::uint32_t, 256>, 2> places;
  for (auto& digit : places) std::fill_n(digit.begin(), values, 0);
  for (std::uint64_t& key : keys) {
    const std::uint32_t distance = std::max(magnitude(key), low) - low, sign = negative(key);
    const std::uint32_t digits = (kSpan + (distance ^ sign) - sign) >> (kSpanBits - 2 * bits);
    key = (key & ~(std::uint64_t{0xffff} << kDigits)) | (static_cast<std::uint64_t>(digits) << kDigits);
    ++places[0][digits & (values - 1)];
    ++places[1][digits >> bits];
  }
  std::uint32_t at[2] = {};
  for (std::size_t value = 0; value < values; ++value) {
    at[0] += std::exchange(places[0][value], at[0]);
    at[1] += std::exchange(places[1][value], at[1]);
  }
  for (const std::uint64_t key : keys) scratch[places[0][(key >> kDigits) & (values - 1)]++] = key;
  for (const std::uint64_t key : scratch) keys[places[1][(key >> (kDigits + bits)) & (values - 1)]++] = key;

  // Few are alike in both, and of these half are in order; should it be more, comparing is faster.
  std::size_t moves_left = 4 * keys.size();
  for (std::size_t i = 1; i < keys.size(); ++i) {
    if (keys[i] >= keys[i - 1]) continue;
    const std::uint64_t key = keys[i];
    std::size_t to = i;
    for (; to > 0 && keys[to - 1] > key; --to) keys[to] = keys[to - 1];
    keys[to] = key;
    if (i - to > moves_left) return std::sort(keys.begin(), keys.end());
    moves_left -= i - to;
  }
}

}  // namespace gipo
