#pragma once

#include <bit>
#include <cstdint>

namespace gipo {

// exp for |x| <= 87, with a relative error below 3e-7; NaN stays NaN. Without branches or calls, so that a loop over it
// becomes vectors.
inline float fast_exp(float x) {
  constexpr float kShifter = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number, in the last bits
  const float shifted = x * 1.44269504f + kShifter, n = shifted - kShifter;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // log 2 in two parts
  float p = r * (1.0f / 720) + (1.0f / 120);
  p = p * r + (1.0f / 24);
  p = p * r + (1.0f / 6);
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127) << 23);  // 2^n
}

}  // namespace gipo
