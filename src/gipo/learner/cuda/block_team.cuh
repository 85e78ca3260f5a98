#pragma once

#include "gipo/learner/cuda/reduce.cuh"

namespace gipo::cuda {

// All threads of a block as a team (learner/team.h).
struct BlockTeam {
  static constexpr int kMostSums = 10;
  double* room;  // shared, [(warps + 1) * kMostSums]; null where nothing is summed

  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ void sync() const { __syncthreads(); }
  template <int kCount>
  __device__ void sums(double (&values)[kCount]) const {
    static_assert(kCount <= kMostSums);
    block_sums(values, room);
  }
  __device__ float largest(float value) const { return block_max(value, reinterpret_cast<float*>(room)); }
};

}  // namespace gipo::cuda
