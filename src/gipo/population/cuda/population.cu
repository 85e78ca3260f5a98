// The card's side of a population: one block of threads for each run.
#include "gipo/learner/cuda/launch.cuh"
#include "gipo/learner/cuda/ptx.cuh"
#include "gipo/learner/cuda/reduce.cuh"
#include "gipo/population/advance.h"
#include "gipo/population/cuda/population.h"

namespace gipo::population {
namespace {

// All threads of a block.
struct Block {
  double* room;  // [(warps + 1) * 10] shared
  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ void sync() const { __syncthreads(); }
  template <int kCount>
  __device__ void sums(double (&values)[kCount]) const {
    static_assert(kCount <= 10);
    cuda::block_sums(values, room);
  }
  __device__ float largest(float value) const { return cuda::block_max(value, reinterpret_cast<float*>(room)); }
};

__global__ void __launch_bounds__(kMostThreads) advance_kernel(const __grid_constant__ CardPopulation all) {
  __shared__ double room[(kMostThreads / 32 + 1) * 10];
  alignas(16) __shared__ char spec_room[sizeof(RunSpec)];
  RunSpec& spec = *reinterpret_cast<RunSpec*>(spec_room);
  Block block{room};
  copy_array(block, &spec, all.specs + blockIdx.x, 1);
  block.sync();
  const RunPlace place = all.places[blockIdx.x];
  RunMemory memory;
  Carver head(all.heads + place.head), body(all.bodies + place.body), report(all.reports + place.report);
  carve_head(spec, memory, head);
  carve_body(spec, memory, body);
  carve_report(spec, memory, report);
  Carver work(cuda::shared_memory<char>());
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
