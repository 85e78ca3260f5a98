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

// What another block wrote before it added to the same place with a fence is seen after this.
__device__ inline unsigned load_acquire(const unsigned* place) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(place) : "memory");
  return value;
}

// Where a launch may begin before the one that it follows has ended: until that has.
__device__ inline void wait_for_launch_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void let_next_launch_begin() { asm volatile("griddepcontrol.launch_dependents;"); }

}  // namespace gipo::cuda
