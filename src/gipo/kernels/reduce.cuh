// Sums and maxima over a warp and over a block, always in the same order.
#pragma once

namespace gipo::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

template <class T>
__device__ inline T warp_sum(T v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(kAllLanes, v, step);
  return v;
}
__device__ inline float warp_max(float v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, v, step);
    v = v < other ? other : v;
  }
  return v;
}

// Each of the values over all threads of a block of whole warps. `room`: shared, (warps + 1) * kCount doubles.
template <int kCount>
__device__ inline void block_sums(double (&values)[kCount], double* room) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const double sum = warp_sum(values[k]);
    if (lane == 0) room[warp * kCount + k] = sum;
  }
  __syncthreads();
  for (int k = warp; k < kCount; k += warps) {
    const double sum = warp_sum(lane < warps ? room[lane * kCount + k] : 0.0);
    if (lane == 0) room[warps * kCount + k] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kCount; ++k) values[k] = room[warps * kCount + k];
  __syncthreads();
}

__device__ inline float block_max(float value, float* room) {  // room: shared, a float for each warp
  value = warp_max(value);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  __syncthreads();
  value = warp_max(threadIdx.x % 32 < blockDim.x / 32 ? room[threadIdx.x % 32] : 0.0f);
  __syncthreads();
  return value;
}

}  // namespace gipo::cuda
