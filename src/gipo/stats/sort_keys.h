#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace gipo {

// A float and a tag as one key that orders by the float: -inf < ... < -0 < +0 < ... < +inf, NaN at the ends. The bits
// between the two are the sort's own.
inline std::uint64_t float_key(float value, std::uint16_t tag) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t ordered = bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
  return (static_cast<std::uint64_t>(ordered) << 32) | tag;
}
inline float float_of(std::uint64_t key) {
  const auto ordered = static_cast<std::uint32_t>(key >> 32);
  return std::bit_cast<float>(ordered ^ ((ordered >> 31) != 0 ? 0x80000000u : 0xffffffffu));
}
inline std::uint16_t tag_of(std::uint64_t key) { return static_cast<std::uint16_t>(key); }

// In ascending order, ties by their tags. By counting, with hardly a branch that depends on the data: for a few hundred
// keys several times as fast as comparing. `scratch` is as long as `keys`.
void sort_keys(std::span<std::uint64_t> keys, std::span<std::uint64_t> scratch);

}  // namespace gipo
