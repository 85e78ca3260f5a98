#include <algorithm>

#include "gipo/learner/cuda/inference.h"
#include "gipo/learner/cuda/launch.cuh"
#include "gipo/learner/cuda/small_network.cuh"

namespace gipo::cuda {
namespace {

constexpr int kMultiprocessors = 132;

template <ProductKind kKind>
__global__ void __launch_bounds__(kSmallThreads) inference_kernel(const __grid_constant__ Inference all) {
  auto* const memory = shared_memory<float>();
  const SmallNetwork& net = all.network;
  const int inputs = net.layer[0].in, outputs = net.layer[net.layers - 1].out, ldo = small_stride(outputs);
  const float* const y = memory + net.layer[net.layers - 1].outputs;
  let_next_launch_begin();
  begin_weights(memory, net, all.parameters);
  wait_for_launch_before();
  for (int first = static_cast<int>(blockIdx.x) * net.rows; first < all.rows;
       first += static_cast<int>(gridDim.x) * net.rows) {
    const int rows = min(net.rows, all.rows - first);
    begin_matrix(memory + net.input, all.observations + static_cast<std::size_t>(first) * inputs, inputs, rows, inputs,
                 net.rows);
    end_group();
    wait_for_groups<0>();
    __syncthreads();
    forward<kKind>(memory, net);
    float* const out = all.outputs + static_cast<std::size_t>(first) * outputs;
    for (int i = threadIdx.x; i < rows * outputs; i += kSmallThreads) out[i] = y[i / outputs * ldo + i % outputs];
    __syncthreads();
  }
}

std::size_t bytes_of(const SmallNetwork& network) {
  return sizeof(float) * static_cast<std::size_t>(network.forward_floats);
}

}  // namespace

int inference_rows_per_block(int rows) { return rows <= 16 * kMultiprocessors ? 16 : 64; }

void prepare_inference(const SmallNetwork& network, ProductKind kind) {
  with_small_kind(kind, [&](auto known) {
    check(cudaFuncSetAttribute(inference_kernel<known.value>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(bytes_of(network))),
          "shared memory");
  });
}

void run_inference(const Inference& inference, ProductKind kind, cudaStream_t stream) {
  const int rows = inference.network.rows, blocks = (inference.rows + rows - 1) / rows;
  with_small_kind(kind, [&](auto known) {
    launch_as(LaunchKind::kEarly, inference_kernel<known.value>, std::min(blocks, 2 * kMultiprocessors), kSmallThreads,
              bytes_of(inference.network), stream, "inference", inference);
  });
}

}  // namespace gipo::cuda
