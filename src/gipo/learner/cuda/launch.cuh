#pragma once

#include <cuda_runtime.h>

#include "gipo/learner/cuda/memory.h"
#include "gipo/learner/cuda/ptx.cuh"

namespace gipo::cuda {

// together: all blocks are on the card at once, so that they may wait for each other.
// early: begins before the launch that it follows has ended, for which the kernel waits itself.
enum class LaunchKind { kPlain, kTogether, kEarly };

template <class... Parameters>
void launch_as(LaunchKind kind, void (*kernel)(Parameters...), int blocks, int threads, std::size_t shared,
               cudaStream_t stream, const char* what, const Parameters&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = kind == LaunchKind::kTogether ? cudaLaunchAttributeCooperative
                                               : cudaLaunchAttributeProgrammaticStreamSerialization;
  (kind == LaunchKind::kTogether ? attribute.val.cooperative : attribute.val.programmaticStreamSerializationAllowed) =
      1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = kind == LaunchKind::kPlain ? 0 : 1;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), what);
}
template <class... Parameters>
void launch(void (*kernel)(Parameters...), int blocks, int threads, std::size_t shared, cudaStream_t stream,
            const char* what, const Parameters&... arguments) {
  launch_as(LaunchKind::kPlain, kernel, blocks, threads, shared, stream, what, arguments...);
}

// The work of a kernel that begins early, twice: first with whatever there is, which brings its code to the multiprocessor
// while it has to wait anyway. What it writes nobody may read before, and it may not read what it writes.
template <class Work>
__device__ inline void rehearse_and_run(Work&& work) {
  let_next_launch_begin();
#pragma unroll 1
  for (int time = 0; time < 2; ++time) {
    if (time == 1) wait_for_launch_before();
    work();
    __syncthreads();
  }
}

// One of the few entries of an array among a kernel's parameters: the one that this block belongs to. Chosen with places
// that the compiler knows: an index that it does not know makes every use of an entry a slow read.
template <class Entry, int kMost, class Entries, class Blocks>
__device__ inline Entry entry_of_block(const Entries& entries, const Blocks& first_block, int& block) {
  Entry entry = entries[0];
  int first = 0;
#pragma unroll
  for (int i = 1; i < kMost; ++i) {
    if (static_cast<int>(blockIdx.x) < first_block[i]) continue;
    entry = entries[i];
    first = first_block[i];
  }
  block = static_cast<int>(blockIdx.x) - first;
  return entry;
}

}  // namespace gipo::cuda
