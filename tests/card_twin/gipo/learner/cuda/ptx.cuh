// The twin of src/gipo/learner/cuda/ptx.cuh on the processor.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace gipo::cuda {

template <class T>
T* shared_memory() {
  return reinterpret_cast<T*>(card_twin::place().shared);
}

// The copy is there at once.
template <int kBytes>
void begin_copy(float* to, const float* from, int valid) {
  std::memcpy(to, from, static_cast<std::size_t>(valid));
  std::memset(reinterpret_cast<char*>(to) + valid, 0, static_cast<std::size_t>(kBytes - valid));
}
inline void end_group() {}
template <int kLeft>
void wait_for_groups() {}

inline void multiply_add(float (&sums)[4], const std::uint32_t (&x)[4], const std::uint32_t (&y)[2]) {
  struct Fragment {
    std::uint32_t x[4], y[2];
  };
  auto* const all = static_cast<Fragment*>(card_twin::warp_room());
  const unsigned lane = threadIdx.x % 32;
  for (int q = 0; q < 4; ++q) all[lane].x[q] = x[q];
  for (int q = 0; q < 2; ++q) all[lane].y[q] = y[q];
  card_twin::wait_in_warp();
  const auto seen = [](std::uint32_t bits) { return __uint_as_float(bits & 0xffffe000u); };
  for (unsigned q = 0; q < 4; ++q) {
    const unsigned row = lane / 4 + q / 2 * 8, column = lane % 4 * 2 + q % 2;
    for (unsigned k = 0; k < 8; ++k) {
      sums[q] += seen(all[row % 8 * 4 + k % 4].x[row / 8 + k / 4 * 2]) * seen(all[column * 4 + k % 4].y[k / 4]);
    }
  }
  card_twin::wait_in_warp();
}

inline float short_tanh(float x) { return 1.0f - 2.0f / (std::exp2(x * 2.885390081777927f) + 1.0f); }

inline std::uint32_t rounded_half(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
inline void split_pair(float x, float y, std::uint32_t& high, std::uint32_t& low) {
  high = rounded_half(x) | rounded_half(y) << 16;
  low = rounded_half(x - __uint_as_float(high << 16)) | rounded_half(y - __uint_as_float(high & 0xffff0000u)) << 16;
}
template <bool kTurned>
void load_matrices(std::uint32_t (&to)[4], const void* row) {
  auto* const rows = static_cast<const std::uint16_t**>(card_twin::warp_room());
  const unsigned lane = threadIdx.x % 32;
  rows[lane] = static_cast<const std::uint16_t*>(row);
  card_twin::wait_in_warp();
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    std::uint32_t pair[2];
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned outer = lane / 4, inner = lane % 4 * 2 + i;
      pair[i] = kTurned ? rows[8 * matrix + inner][outer] : rows[8 * matrix + outer][inner];
    }
    to[matrix] = pair[0] | pair[1] << 16;
  }
  card_twin::wait_in_warp();
}
inline void multiply_add_halves(float (&sums)[4], const std::uint32_t (&x)[4], std::uint32_t y0, std::uint32_t y1) {
  struct Fragment {
    std::uint32_t x[4], y[2];
  };
  auto* const all = static_cast<Fragment*>(card_twin::warp_room());
  const unsigned lane = threadIdx.x % 32;
  for (int q = 0; q < 4; ++q) all[lane].x[q] = x[q];
  all[lane].y[0] = y0;
  all[lane].y[1] = y1;
  card_twin::wait_in_warp();
  const auto half = [](std::uint32_t pair, unsigned i) {
    return __uint_as_float(i == 0 ? pair << 16 : pair & 0xffff0000u);
  };
  for (unsigned q = 0; q < 4; ++q) {
    const unsigned row = lane / 4 + q / 2 * 8, column = lane % 4 * 2 + q % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned place = k % 8 / 2;
      sums[q] +=
          half(all[row % 8 * 4 + place].x[row / 8 + k / 8 * 2], k % 2) * half(all[column * 4 + place].y[k / 8], k % 2);
    }
  }
  card_twin::wait_in_warp();
}

inline unsigned load_acquire(const unsigned* place) {
  card_twin::let_others_run();
  return *place;
}
inline void add_release(unsigned* place, unsigned value) { *place += value; }
inline void wait_for_launch_before() {}
inline void let_next_launch_begin() {}

}  // namespace gipo::cuda
