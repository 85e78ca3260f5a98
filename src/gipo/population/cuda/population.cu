// The card's side of a population: one block of threads for each run.
#include "gipo/learner/cuda/launch.cuh"
#include "gipo/kernels/reduce.cuh"
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

// The whole of a kernel: f(block, run) for the run of this block.
template <bool kSpread, class F>
__device__ void with_run(const CardPopulation& all, const F& f) {
  extern __shared__ float4 shared[];
  __shared__ double room[(kMostThreads / 32 + 1) * 10];
  __shared__ alignas(16) char spec_room[sizeof(RunSpec)];
  RunSpec& spec = *reinterpret_cast<RunSpec*>(spec_room);
  Block block{room};
  const int which = all.runs[blockIdx.x];
  copy_array(block, &spec, all.specs + which, 1);
  block.sync();
  const RunPlace place = all.places[which];
  RunMemory memory;
  Carver head(all.heads + place.head), body(all.bodies + place.body), report(all.reports + place.report);
  carve_head(spec, memory, head);
  carve_body(spec, memory, body);
  carve_report(spec, memory, report);
  if constexpr (kSpread) {
    Carver asked(all.asked + place.asked), told(all.told + place.told);
    carve_asked(spec, memory, asked);
    carve_told(spec, memory, told);
  }
  Carver work(reinterpret_cast<char*>(shared));
  f(block, Run{spec, memory, carve_workspace<kSpread>(spec, memory, block.size(), work)});
}

__global__ void __launch_bounds__(kMostThreads) advance_kernel(const __grid_constant__ CardPopulation all) {
  with_run<false>(all, [&](Block& block, const Run& run) { advance(block, run, all.updates); });
}

__global__ void __launch_bounds__(kMostThreads) turn_kernel(const __grid_constant__ CardPopulation all) {
  with_run<true>(all, [&](Block& block, const Run& run) { take_turn(block, run, all.updates); });
}

}  // namespace

void advance_all(const CardPopulation& all, int runs, int threads, std::size_t shared, cudaStream_t stream) {
  cuda::launch(advance_kernel, runs, threads, shared, stream, "a population", all);
}

void take_turns(const CardPopulation& all, int runs, int threads, std::size_t shared, cudaStream_t stream) {
  cuda::launch(turn_kernel, runs, threads, shared, stream, "a population", all);
}

void prepare_population(std::size_t advancing, std::size_t turning) {
  const auto allow = [](auto* kernel, std::size_t shared) {
    cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
                "shared memory");
  };
  allow(advance_kernel, advancing);
  allow(turn_kernel, turning);
}

}  // namespace gipo::population
