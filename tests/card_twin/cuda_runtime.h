// CUDA's language on the processor: each thread of a launch is a fiber, which others relieve where it waits.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cmath>
#include <tuple>

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ \
  static  // of blocks that run one after the other; a launch of blocks together has dynamic memory alone

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  explicit dim3(unsigned size) : x(size) {}
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

namespace card_twin {

struct Place {
  unsigned thread, block, threads, blocks;
  char* shared;
};
const Place& place();  // of the fiber that runs
void wait_in_block();  // until all threads of the block do
void wait_in_warp();   // likewise
void let_others_run();
void* warp_room();  // 32 * 64 bytes that the lanes of a warp share
void run(unsigned blocks, unsigned threads, std::size_t shared, bool together, const std::function<void()>& thread);

}  // namespace card_twin

template <unsigned card_twin::Place::*kMember>
struct TwinIndex {
  struct {
    operator unsigned() const { return card_twin::place().*kMember; }
  } x;
};
inline constexpr TwinIndex<&card_twin::Place::thread> threadIdx{};
inline constexpr TwinIndex<&card_twin::Place::block> blockIdx{};
inline constexpr TwinIndex<&card_twin::Place::threads> blockDim{};
inline constexpr TwinIndex<&card_twin::Place::blocks> gridDim{};

inline void __syncthreads() { card_twin::wait_in_block(); }
inline void __syncwarp() { card_twin::wait_in_warp(); }
inline void __threadfence() {}
namespace card_twin {
template <class T>
T value_of_lane(T value, unsigned lane) {
  auto* const room = static_cast<T*>(warp_room());
  room[threadIdx.x % 32] = value;
  wait_in_warp();
  const T found = room[lane];
  wait_in_warp();
  return found;
}
}  // namespace card_twin
template <class T>
T __shfl_xor_sync(unsigned, T value, int step) {
  return card_twin::value_of_lane(value, threadIdx.x % 32 ^ static_cast<unsigned>(step));
}
template <class T>
T __shfl_down_sync(unsigned, T value, int step) {
  const unsigned lane = threadIdx.x % 32, from = lane + static_cast<unsigned>(step);
  return card_twin::value_of_lane(value, from < 32 ? from : lane);
}
template <class T>
T atomicAdd(T* place, T value) {
  const T before = *place;
  *place += value;
  return before;
}
template <class T>
T __ldcg(const T* place) {
  return *place;
}
template <class T>
T __ldcs(const T* place) {
  return *place;
}
template <class T>
void __stcg(T* place, std::type_identity_t<T> value) {
  *place = value;
}
template <class T>
void __stcs(T* place, std::type_identity_t<T> value) {
  *place = value;
}
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int min(int a, int b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
using std::isfinite;

enum cudaLaunchAttributeID { cudaLaunchAttributeCooperative, cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int cooperative, programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  const bool together = config->numAttrs > 0 && config->attrs->id == cudaLaunchAttributeCooperative;
  const std::tuple<Parameters...> all(arguments...);
  twin_put(config->stream,
           [blocks = config->gridDim.x, threads = config->blockDim.x, shared = config->dynamicSmemBytes, together,
            kernel, all] { card_twin::run(blocks, threads, shared, together, [&] { std::apply(kernel, all); }); });
  return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel*, int, std::size_t) {
  return *blocks = 1, cudaSuccess;
}
