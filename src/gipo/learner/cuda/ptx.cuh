// What is written in the card's own instructions.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace gipo::cuda {

// The shared memory that a launch asked for, from a multiple of 16 bytes on.
template <class T>
__device__ inline T* shared_memory() {
  extern __shared__ float4 all_shared_memory[];
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
