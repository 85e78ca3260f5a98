#include "gipo/core/random.h"

#include <Random123/philox.h>

#include <cmath>
#include <numbers>

#include "gipo/core/error.h"

namespace gipo {
namespace {

// SplitMix64's finaliser: every input bit reaches every output bit.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t derive_seed(std::uint64_t root_seed, std::string_view purpose, std::uint64_t index) {
  std::uint64_t h = mix(root_seed);
  for (const char c : purpose) h = mix(h ^ static_cast<unsigned char>(c));
  return mix(h ^ mix(index));
}

RandomStream RandomStream::derive(std::uint64_t root_seed, std::string_view purpose, std::uint64_t index) {
  return RandomStream(derive_seed(root_seed, purpose, index));
}

std::uint32_t RandomStream::next_u32() {
  const std::uint64_t block = position_ / 4;
  if (block != block_index_) {
    using Philox = r123::Philox4x32;
    const Philox::ctr_type counter = {
        {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}};
    const Philox::key_type key = {{static_cast<std::uint32_t>(key_), static_cast<std::uint32_t>(key_ >> 32)}};
    const Philox::ctr_type words = Philox()(counter, key);
    for (std::size_t i = 0; i < 4; ++i) block_[i] = words[i];
    block_index_ = block;
  }
  return block_[position_++ % 4];
}

std::uint64_t RandomStream::next_u64() {
  const std::uint64_t low = next_u32();
  return low | (static_cast<std::uint64_t>(next_u32()) << 32);
}

double RandomStream::uniform() { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }

double RandomStream::uniform(double low, double high) { return low + (high - low) * uniform(); }

double RandomStream::normal() {
  const double u = 1.0 - uniform();  // (0, 1]: the logarithm stays finite
  const double angle = 2.0 * std::numbers::pi * uniform();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(angle);
}

std::uint64_t RandomStream::below(std::uint64_t n) {
  GIPO_CHECK(n > 0);
  // Draws past the largest multiple of n are thrown away, so that every value is equally likely.
  const std::uint64_t limit = ~0ull - (~0ull % n + 1) % n;
  std::uint64_t x = next_u64();
  while (x > limit) x = next_u64();
  return x % n;
}

}  // namespace gipo
