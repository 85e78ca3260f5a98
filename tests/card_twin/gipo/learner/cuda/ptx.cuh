// The twin of src/gipo/learner/cuda/ptx.cuh on the processor.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>

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

// What four warps do together, each thread does for its own sums, and as late as it may: when it waits for them.
inline const bool kWarpGroups = std::getenv("GIPO_TWIN_WARP_GROUPS") != nullptr;

template <int kRowBytes>
std::uint64_t factor_of_group(const void* rows, int inside) {
  const auto place = static_cast<std::uint64_t>(static_cast<const char*>(rows) - card_twin::place().shared + inside);
  return place >> 4 | std::uint64_t{kRowBytes / 2} << 32 | std::uint64_t{kRowBytes == 128 ? 1 : 2} << 62;
}
// The number of a factor, as the description says: `turned`, a row has places, 64 of them, else it has k.
inline float number_of_factor(std::uint64_t factor, bool turned, unsigned at, unsigned k) {
  const auto begin = static_cast<unsigned>(factor & 0x3fff) << 4,
             eight_rows = static_cast<unsigned>(factor >> 32 & 0x3fff) << 4;
  const unsigned row = turned ? k : at, inside = turned ? at : k;
  unsigned byte = begin + row / 8 * eight_rows + row % 8 * (eight_rows / 8) + 2 * inside;
  byte ^= (factor >> 62 == 1 ? byte >> 7 & 7 : byte >> 7 & 3) << 4;
  std::uint16_t half;
  std::memcpy(&half, card_twin::place().shared + byte, sizeof half);
  return __uint_as_float(std::uint32_t{half} << 16);
}
inline void show_to_groups() {}
inline void begin_products() {}
struct BegunProduct {
  std::uint64_t x, y;
  bool turned_x, turned_y;
};
// Of each thread, by what is between two ends.
inline std::map<const card_twin::Place*, std::deque<std::vector<BegunProduct>>> begun_products;
template <bool kTurnedX, bool kTurnedY>
void begin_product(float (&)[32], std::uint64_t x, std::uint64_t y) {
  auto& mine = begun_products[&card_twin::place()];
  if (mine.empty()) mine.emplace_back();
  mine.back().push_back({x, y, kTurnedX, kTurnedY});
}
inline void end_products() { begun_products[&card_twin::place()].emplace_back(); }
template <int kLeft>
void wait_for_products(float (&sums)[32]) {
  auto& mine = begun_products[&card_twin::place()];
  for (; mine.size() > kLeft + 1; mine.pop_front()) {
    for (const BegunProduct& p : mine.front()) {
      const unsigned lane = threadIdx.x % 32, first = threadIdx.x / 32 % 4 * 16 + lane / 4;
      for (unsigned i = 0; i < 32; ++i) {
        for (unsigned k = 0; k < 16; ++k) {
          sums[i] += number_of_factor(p.x, p.turned_x, first + i / 2 % 2 * 8, k) *
                     number_of_factor(p.y, p.turned_y, i / 4 * 8 + lane % 4 * 2 + i % 2, k);
        }
      }
    }
  }
  if (kLeft == 0) begun_products.erase(&card_twin::place());
}

inline unsigned load_acquire(const unsigned* place) {
  card_twin::let_others_run();
  return *place;
}
inline void add_release(unsigned* place, unsigned value) { *place += value; }
inline void wait_for_launch_before() {}
inline void let_next_launch_begin() {}

}  // namespace gipo::cuda
