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

inline unsigned load_acquire(const unsigned* place) {
  card_twin::let_others_run();
  return *place;
}
inline void wait_for_launch_before() {}
inline void let_next_launch_begin() {}

}  // namespace gipo::cuda
