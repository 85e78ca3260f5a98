// The random streams of core/random.h for runs on a card: the same key and position give the same numbers.
#pragma once

#include <Random123/philox.h>

#include <cmath>
#include <cstdint>

#include "gipo/core/device.h"

namespace gipo::population {

struct Stream {
  std::uint64_t key = 0, position = 0;  // the position in 32-bit words; always even here

  GIPO_HD std::uint64_t next_u64() {
    const std::uint64_t block = position / 4;
    const r123::Philox4x32::ctr_type counter = {
        {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}};
    const r123::Philox4x32::key_type keys = {{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)}};
    const r123::Philox4x32::ctr_type words = r123::Philox4x32()(counter, keys);
    const bool second = position % 4 != 0;
    position += 2;
    const std::uint64_t low = second ? words.v[2] : words.v[0], high = second ? words.v[3] : words.v[1];
    return low | high << 32;
  }
  GIPO_HD double uniform() { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }
  GIPO_HD double uniform(double low, double high) { return low + (high - low) * uniform(); }
  GIPO_HD double normal() {
    const double u = 1.0 - uniform();  // (0, 1]: the logarithm stays finite
    const double angle = 2.0 * 3.141592653589793 * uniform();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(angle);
  }
  // {0, ..., n-1}. Always one draw, so that several can be made at once; n is so small that none is favoured by more than
  // one part in 2^32.
  GIPO_HD std::uint64_t below(std::uint64_t n) { return next_u64() % n; }
  // The stream so many draws further on.
  GIPO_HD Stream after(std::uint64_t draws) const { return {key, position + 2 * draws}; }
};

}  // namespace gipo::population
