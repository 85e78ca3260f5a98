// The card's side of a population: one block of threads for each run.
#include "gipo/learner/cuda/block_team.cuh"
#include "gipo/learner/cuda/launch.cuh"
#include "gipo/population/advance.h"
#include "gipo/population/cuda/population.h"

namespace gipo::population {
namespace {

__global__ void __launch_bounds__(kMostThreads) advance_kernel(const __grid_constant__ CardPopulation all) {
  extern __shared__ float4 shared[];
  __shared__ double room[(kMostThreads / 32 + 1) * cuda::BlockTeam::kMostSums];
  __shared__ alignas(16) char spec_room[sizeof(RunSpec)];
  RunSpec& spec = *reinterpret_cast<RunSpec*>(spec_room);
  cuda::BlockTeam block{room};
  copy_array(block, &spec, all.specs + blockIdx.x, 1);
  block.sync();
  const RunPlace place = all.places[blockIdx.x];
  RunMemory memory;
  Carver head(all.heads + place.head), body(all.bodies + place.body), report(all.reports + place.report);
  carve_head(spec, memory, head);
  carve_body(spec, memory, body);
  carve_report(spec, memory, report);
  Carver work(reinterpret_cast<char*>(shared));
  const Run run{spec, memory, carve_workspace(spec, block.size(), work)};
  advance(block, run, memory.state->version + all.updates);
}

}  // namespace

void advance_all(const CardPopulation& all, int runs, int threads, std::size_t shared, cudaStream_t stream) {
  cuda::launch(advance_kernel, runs, threads, shared, stream, "a population", all);
}

void prepare_population(std::size_t shared) {
  cuda::check(
      cudaFuncSetAttribute(advance_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
      "shared memory");
}

int blocks_at_once(int threads, std::size_t shared) {
  int blocks = 0;
  cuda::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, advance_kernel, threads, shared),
              "blocks at once");
  return blocks;
}

}  // namespace gipo::population
