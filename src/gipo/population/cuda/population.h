// What the kernels of a population are given.
#pragma once

#include <cuda_runtime_api.h>

#include "gipo/population/layout.h"

namespace gipo::population {

struct CardPopulation {
  const RunSpec* specs;    // [runs]
  const RunPlace* places;  // [runs]
  char *heads, *bodies, *reports;
  std::int64_t updates;  // of this launch
};

void advance_all(const CardPopulation& all, int runs, int threads, std::size_t shared, cudaStream_t stream);
// Before the first launch with so much shared memory.
void prepare_population(std::size_t shared);
// Blocks that one multiprocessor holds.
int blocks_at_once(int threads, std::size_t shared);

}  // namespace gipo::population
