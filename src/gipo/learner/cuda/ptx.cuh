// What is written in the card's own instructions.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace gipo::cuda {

// The shared memory that a launch asked for, from a multiple of 1,024 bytes on.
template <class T>
__device__ inline T* shared_memory() {
  extern __shared__ __align__(1024) float4 all_shared_memory[];
  return reinterpret_cast<T*>(all_shared_memory);
}

// Begins a copy to shared memory of so many bytes, the first `valid` of them from there, the rest zeros. The header of
// CUDA has a switch over the latter, which is most of a kernel's code.
template <int kBytes>
__device__ inline void begin_copy(float* to, const float* from, int valid) {
  const auto place = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(valid));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(place), "l"(from), "r"(valid));
  }
}
__device__ inline void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ inline void wait_for_groups() {  // but the last kLeft
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// sums += x [16, 8] y [8, 8] on the tensor cores, by a whole warp; of a factor they read the first ten bits.
__device__ inline void multiply_add(float (&sums)[4], const std::uint32_t (&x)[4], const std::uint32_t (&y)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}

// tanh with an error below 3e-7, in a few instructions: code that runs once or twice is as slow as it is long.
__device__ inline float short_tanh(float x) {
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 2.885390081777927f));  // e^2x
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(power + 1.0f));
  return 1.0f - 2.0f * inverse;
}

// Two floats as bf16, and what that leaves of them, the first in the lower halves.
__device__ inline void split_pair(float x, float y, std::uint32_t& high, std::uint32_t& low) {
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(y), "f"(x));
  const float left_x = x - __uint_as_float(high << 16), left_y = y - __uint_as_float(high & 0xffff0000u);
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(left_y), "f"(left_x));
}

// Four matrices of 8 x 8 bf16 by a whole warp; the lanes say where their rows of 16 bytes are in shared memory, eight lanes
// for each matrix. A lane gets two neighbours of row lane / 4, or of that column where they are turned.
template <bool kTurned>
__device__ inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
  const auto place = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTurned) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(place)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(place)
                 : "memory");
  }
}

// sums += x [16, 16] y [16, 8] of bf16 on the tensor cores, by a whole warp.
__device__ inline void multiply_add_halves(float (&sums)[4], const std::uint32_t (&x)[4], std::uint32_t y0,
                                           std::uint32_t y1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y0), "r"(y1));
}

// The instructions of four warps together, which this kind of card alone has.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kWarpGroups = true;
#else
inline constexpr bool kWarpGroups = false;
#endif

// A factor in shared memory as these instructions want it described. Its rows of 64 or 128 bytes follow each other, from a
// multiple of eight rows on; pieces of 16 bytes have changed places within a row, in one of 64 bytes by half the row's number
// modulo 4, in one of 128 bytes by its number modulo 8. `inside` is the first byte of the row that is meant.
template <int kRowBytes>
__device__ inline std::uint64_t factor_of_group(const void* rows, int inside) {
  static_assert(kRowBytes == 64 || kRowBytes == 128);
  constexpr std::uint64_t kEightRows = 8 * kRowBytes / 16, kPlaces = kRowBytes == 128 ? 1 : 2;
  const auto place = static_cast<std::uint64_t>(__cvta_generic_to_shared(rows)) + static_cast<std::uint64_t>(inside);
  return place >> 4 & 0x3fff | std::uint64_t{1} << 16 | kEightRows << 32 | kPlaces << 62;
}

// What this thread wrote to shared memory is seen by these instructions after the next wait of all threads.
__device__ inline void show_to_groups() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Begins sums += x [64, 16] y [16, 64] of bf16, by four warps: warp w has rows 16 w + lane / 4, and 8 more, of it, sums 4 j and on
// the columns 8 j + lane % 4 * 2. turned: places are inside the rows, not k. end_products comes after some of them.
template <bool kTurnedX, bool kTurnedY>
__device__ inline void begin_product(float (&s)[32], std::uint64_t x, std::uint64_t y) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, "
      "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, "
      "%34, "
      "%35;"
      : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7]), "+f"(s[8]),
        "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]), "+f"(s[14]), "+f"(s[15]), "+f"(s[16]),
        "+f"(s[17]), "+f"(s[18]), "+f"(s[19]), "+f"(s[20]), "+f"(s[21]), "+f"(s[22]), "+f"(s[23]), "+f"(s[24]),
        "+f"(s[25]), "+f"(s[26]), "+f"(s[27]), "+f"(s[28]), "+f"(s[29]), "+f"(s[30]), "+f"(s[31])
      : "l"(x), "l"(y), "n"(kTurnedX ? 1 : 0), "n"(kTurnedY ? 1 : 0));
#endif
}
// Before the first of some products.
__device__ inline void begin_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ inline void end_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Until all have been added but those between the last kLeft ends.
template <int kLeft>
__device__ inline void wait_for_products(float (&s)[32]) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
#pragma unroll
  for (float& sum : s) asm volatile("" : "+f"(sum)::"memory");  // it has changed
#endif
}

// What another block wrote before it added to the same place with a fence is seen after this.
__device__ inline unsigned load_acquire(const unsigned* place) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
  return value;
}

// Adds, so that whoever sees the sum with load_acquire also sees what the block wrote before its last __syncthreads.
__device__ inline void add_release(unsigned* place, unsigned value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(place), "r"(value) : "memory");
}

// Where a launch may begin before the one that it follows has ended: until that has.
__device__ inline void wait_for_launch_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void let_next_launch_begin() { asm volatile("griddepcontrol.launch_dependents;"); }

}  // namespace gipo::cuda
