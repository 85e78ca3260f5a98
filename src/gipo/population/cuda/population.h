// What the kernels of a population are given.
#pragma once

#include <cuda_runtime_api.h>

#include "gipo/population/layout.h"

namespace gipo::population {

struct CardPopulation {
  const RunSpec* specs;    // of all runs
  const RunPlace* places;  // of all runs
  const int* runs;         // those of this launch
  char *heads, *bodies, *reports, *asked, *told;
  std::int64_t updates;  // of a launch that begins; 0: one goes on
};

// Runs whose tasks step on the card.
void advance_all(const CardPopulation& all, int runs, int threads, std::size_t shared, cudaStream_t stream);
// Hosted runs: one turn of each.
void take_turns(const CardPopulation& all, int runs, int threads, std::size_t shared, cudaStream_t stream);
// Before the first launches with so much shared memory.
void prepare_population(std::size_t advancing, std::size_t turning);

}  // namespace gipo::population
