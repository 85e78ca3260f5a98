#include <cstdint>

#include "gipo/learner/cuda/block_team.cuh"
#include "gipo/learner/cuda/fused.h"
#include "gipo/learner/cuda/launch.cuh"
#include "gipo/learner/cuda/loss_rows.cuh"
#include "gipo/learner/team_network.h"

namespace gipo::cuda {
namespace {

using team::Layer;
using team::Net;

constexpr int kThreads = 256;
constexpr int kRows = kRowsPerBlock;

// Shared memory of a block: the parameters of a network, what its layers read and make, and room for gradients.
struct Room {
  float *weights, *samples[team::kMostLayers + 1], *parts, *d_log_std;
};

__host__ __device__ inline int stride_of(const Net& net, int level) {
  return level < net.count ? net.layers[level].in_stride : net.layers[net.count - 1].stride;
}

// Returns how many floats there are, from the first on.
__host__ __device__ inline std::size_t carve(const Net& net, bool backward, int extras, float* base, Room& room) {
  std::size_t at = 0;
  const auto take = [&](int floats) {
    float* const array = base ? base + at : nullptr;
    at += static_cast<std::size_t>(team::fours(floats));
    return array;
  };
  room.weights = take(net.parameters);
  for (int level = 0; level <= net.count; ++level) room.samples[level] = take(kRows * stride_of(net, level));
  if (!backward) return at;
  room.parts = take(16 * kThreads);
  room.d_log_std = take(kRows * extras);
  return at;
}

// One of two networks among a kernel's parameters, where reading is quick whichever it is. Ends with a sync.
__device__ const FusedNet& choose(bool first, const FusedNet& one, const FusedNet& other, std::uint32_t* room) {
  const auto* const from = reinterpret_cast<const std::uint32_t*>(first ? &one : &other);
  for (int t = threadIdx.x; t < static_cast<int>(sizeof(FusedNet) / 4); t += kThreads) room[t] = from[t];
  __syncthreads();
  return *reinterpret_cast<const FusedNet*>(room);
}

// The parameters of a network from their order in files. Ends with a sync.
__device__ void load_weights(const Net& net, const float* parameters, float* weights) {
  for (int l = 0; l < net.count; ++l) {
    const Layer& y = net.layers[l];
    float* const matrix = weights + y.offset;
    if (y.in % 4 == 0 && reinterpret_cast<std::size_t>(parameters) % 16 == 0) {
      const int fours = y.in / 4;
#pragma unroll 4
      for (int t = threadIdx.x; t < y.out * fours; t += kThreads) {
        const float4 v = reinterpret_cast<const float4*>(parameters)[t];
        float* const to = matrix + 4 * (t % fours) * y.stride + t / fours;
        to[0] = v.x;
        to[y.stride] = v.y;
        to[2 * y.stride] = v.z;
        to[3 * y.stride] = v.w;
      }
    } else {
      for (int t = threadIdx.x; t < y.out * y.in; t += kThreads) matrix[t % y.in * y.stride + t / y.in] = parameters[t];
    }
    parameters += y.out * y.in;
    for (int o = threadIdx.x; o < y.out; o += kThreads) matrix[y.in * y.stride + o] = parameters[o];
    parameters += y.out;
    for (int t = threadIdx.x; t < (y.rows - y.in - 1) * y.stride; t += kThreads) matrix[(y.in + 1) * y.stride + t] = 0;
    const int rest = y.stride - y.out;
    for (int t = threadIdx.x; t < (y.in + 1) * rest; t += kThreads) matrix[t / rest * y.stride + y.out + t % rest] = 0;
  }
  __syncthreads();
}

// Rows of the batch from `first` on. Ends with a sync.
__device__ void load_samples(const Net& net, const FusedArrays& f, int first, int count, float* samples) {
  const Layer& y = net.layers[0];
  for (int t = threadIdx.x; t < count * y.rows; t += kThreads) {
    const int row = t / y.rows, k = t % y.rows;
    samples[row * y.in_stride + k] = k < y.in    ? f.observation[static_cast<std::size_t>(first + row) * f.width + k]
                                     : k == y.in ? 1.0f
                                                 : 0.0f;
  }
  __syncthreads();
}

__device__ void store_outputs(const FusedNet& n, const Room& room, int first, int count) {
  const Layer& last = n.net.layers[n.net.count - 1];
  for (int t = threadIdx.x; t < count * last.out; t += kThreads) {
    n.outputs[static_cast<std::size_t>(first) * last.out + t] =
        room.samples[n.net.count][t / last.out * last.stride + t % last.out];
  }
  __syncthreads();
}

__device__ void forward_of(const FusedNet& n, const FusedArrays& f, const Room& room, int first, int count) {
  BlockTeam block{nullptr};
  load_weights(n.net, n.parameters, room.weights);
  team::forward(block, n.net, room.weights, room.samples, count, f.activation);
  store_outputs(n, room, first, count);
}

__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ FusedArrays f, const __grid_constant__ LossArrays a,
                   const __grid_constant__ LossOptions o, int policy_blocks) {
  extern __shared__ float4 shared[];
  const bool policy = static_cast<int>(blockIdx.x) < policy_blocks;
  const int first = (static_cast<int>(blockIdx.x) - (policy ? 0 : policy_blocks)) * kRows;
  const int rows = policy || !f.rows ? f.n : *f.rows, count = min(kRows, rows - first);
  if (count <= 0) return;
  __shared__ alignas(16) std::uint32_t chosen[sizeof(FusedNet) / 4];
  const FusedNet& n = choose(policy, f.policy, f.critic, chosen);
  Room room;
  carve(n.net, false, o.extras, reinterpret_cast<float*>(shared), room);
  load_samples(n.net, f, first, count, room.samples[0]);
  forward_of(n, f, room, first, count);
  if (!policy) return;
  if (f.has_average) forward_of(f.average, f, room, first, count);
  for (int row = threadIdx.x / 32; row < count; row += kThreads / 32) evaluate_row(a, o, first + row);
}

__global__ void __launch_bounds__(kThreads)
    backward_kernel(const __grid_constant__ FusedArrays f, const __grid_constant__ LossArrays a,
                    const __grid_constant__ LossOptions o, int policy_blocks) {
  extern __shared__ float4 shared[];
  const bool policy = static_cast<int>(blockIdx.x) < policy_blocks;
  const int which = static_cast<int>(blockIdx.x) - (policy ? 0 : policy_blocks), first = which * kRows,
            count = min(kRows, f.n - first);
  __shared__ alignas(16) std::uint32_t chosen[sizeof(FusedNet) / 4];
  const FusedNet& n = choose(policy, f.policy, f.critic, chosen);
  const Net& net = n.net;
  Room room;
  carve(net, true, o.extras, reinterpret_cast<float*>(shared), room);
  BlockTeam block{nullptr};
  load_samples(net, f, first, count, room.samples[0]);
  load_weights(net, n.parameters, room.weights);
  team::forward(block, net, room.weights, room.samples, count, f.activation);
  if (policy) output_gradient_of(a, o, which, room.d_log_std);
  __syncthreads();
  const Layer& last = net.layers[net.count - 1];
  const float* derivatives = policy ? a.d_outputs : a.d_value;
  for (int t = threadIdx.x; t < count * last.stride; t += kThreads) {
    const int row = t / last.stride, k = t % last.stride;
    room.samples[net.count][t] =
        k < last.out ? derivatives[static_cast<std::size_t>(first + row) * last.out + k] : 0.0f;
  }
  __syncthreads();
  team::backward(block, net, room.weights, room.samples, count, f.activation, false,
                 n.parts + static_cast<std::size_t>(which) * net.parameters, room.parts);
}

std::size_t bytes_of(const Net& policy, const Net& critic, bool backward, int extras) {
  Room room;
  const std::size_t one = carve(policy, backward, extras, nullptr, room),
                    other = carve(critic, backward, extras, nullptr, room);
  return sizeof(float) * (one > other ? one : other);
}

}  // namespace

std::size_t fused_bytes(const Net& policy, const Net& critic, int extras) {
  return bytes_of(policy, critic, true, extras);
}

void prepare_fused() {
  for (const auto kernel :
       {reinterpret_cast<const void*>(forward_kernel), reinterpret_cast<const void*>(backward_kernel)}) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostFusedBytes)),
          "shared memory");
    prefer_shared_memory(kernel);
  }
}

void fused_forward(const FusedArrays& f, const LossArrays& a, const LossOptions& o, cudaStream_t stream) {
  const int policy_blocks = o.ratios_due ? row_blocks(f.n) : 0;
  launch(forward_kernel, policy_blocks + row_blocks(f.most_rows), kThreads,
         bytes_of(f.policy.net, f.critic.net, false, o.extras), stream, "the networks", f, a, o, policy_blocks);
}

void fused_backward(const FusedArrays& f, const LossArrays& a, const LossOptions& o, bool policy, cudaStream_t stream) {
  const int policy_blocks = policy ? row_blocks(f.n) : 0;
  launch(backward_kernel, policy_blocks + row_blocks(f.n), kThreads,
         bytes_of(f.policy.net, f.critic.net, true, o.extras), stream, "the gradients", f, a, o, policy_blocks);
}

}  // namespace gipo::cuda
