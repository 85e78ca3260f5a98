#pragma once

#include <cuda_runtime.h>

#include "gipo/learner/cuda/memory.h"

namespace gipo::cuda {

template <class... Parameters>
void launch(void (*kernel)(Parameters...), int blocks, int threads, std::size_t shared, cudaStream_t stream,
            const char* what, const Parameters&... arguments) {
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared, stream>>>(arguments...);
  check(cudaGetLastError(), what);
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
