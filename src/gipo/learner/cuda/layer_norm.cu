#include "gipo/learner/cuda/launch.cuh"
#include "gipo/learner/cuda/layer_norm.h"
#include "gipo/kernels/reduce.cuh"

namespace gipo::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

struct NormLaunch {
  std::array<NormLayer, kMostNorms> layers;
  std::array<int, kMostNorms + 1> first_block;
};

__device__ NormLayer layer_of(const NormLaunch& launch, int& first_row) {
  int block;
  const auto layer = entry_of_block<NormLayer, kMostNorms>(launch.layers, launch.first_block, block);
  first_row = block * kNormRows;
  return layer;
}

__global__ void __launch_bounds__(kThreads) norm_kernel(const __grid_constant__ NormLaunch launch) {
  int first_row;
  const NormLayer l = layer_of(launch, first_row);
  const int rows = l.rows ? min(*l.rows, l.most_rows) : l.most_rows, lane = threadIdx.x % 32;
  for (int r = first_row + threadIdx.x / 32; r < min(rows, first_row + kNormRows); r += kWarps) {
    const float* x = l.x + static_cast<std::size_t>(r) * l.width;
    float* z = l.z + static_cast<std::size_t>(r) * l.ldz;
    float sum = 0, square = 0;
    for (int i = lane; i < l.width; i += 32) sum += x[i];
    const float mean = warp_sum(sum) / l.width;
    for (int i = lane; i < l.width; i += 32) square += (x[i] - mean) * (x[i] - mean);
    const float scale = 1.0f / sqrtf(warp_sum(square) / l.width + static_cast<float>(kNormEpsilon));
    for (int i = lane; i < l.width; i += 32) z[i] = (x[i] - mean) * scale * l.gain[i] + l.shift[i];
    if (lane != 0) continue;
    l.mean[r] = mean;
    l.inverse_std[r] = scale;
  }
}

// First each row's two sums, by a warp; then column by column, where the sums of gain and shift are made.
__global__ void __launch_bounds__(kThreads) norm_backward_kernel(const __grid_constant__ NormLaunch launch) {
  __shared__ float averages[kNormRows], slopes[kNormRows];
  int first_row;
  const NormLayer l = layer_of(launch, first_row);
  const int last_row = min(l.most_rows, first_row + kNormRows), lane = threadIdx.x % 32;
  for (int r = first_row + threadIdx.x / 32; r < last_row; r += kWarps) {
    const float *x = l.x + static_cast<std::size_t>(r) * l.width,
                *delta = l.delta + static_cast<std::size_t>(r) * l.width;
    const float mean = l.mean[r], scale = l.inverse_std[r];
    float sum = 0, product = 0;
    for (int i = lane; i < l.width; i += 32) {
      const float g = delta[i] * l.gain[i];
      sum += g;
      product += g * (x[i] - mean) * scale;
    }
    sum = warp_sum(sum);
    product = warp_sum(product);
    if (lane != 0) continue;
    averages[r - first_row] = sum / l.width;
    slopes[r - first_row] = product / l.width;
  }
  __syncthreads();
  float* sums = l.sums + static_cast<std::size_t>(first_row / kNormRows) * 2 * l.width;
  for (int i = threadIdx.x; i < l.width; i += kThreads) {
    const float gain = l.gain[i];
    float d_gain = 0, d_shift = 0;
    for (int r = first_row; r < last_row; ++r) {
      const std::size_t at = static_cast<std::size_t>(r) * l.width + i;
      const float x = l.x[at], d = l.delta[at], normalised = (x - l.mean[r]) * l.inverse_std[r];
      d_gain += d * normalised;
      d_shift += d;
      float v = (d * gain - averages[r - first_row] - normalised * slopes[r - first_row]) * l.inverse_std[r];
      if (l.activation == Activation::kTanh) v *= 1.0f - x * x;
      if (l.activation == Activation::kRelu) v = x > 0.0f ? v : 0.0f;
      l.delta[at] = v;
    }
    sums[i] = d_gain;
    sums[l.width + i] = d_shift;
  }
}

NormLaunch norms_of(const std::vector<NormLayer>& layers) {
  NormLaunch launch{};
  for (std::size_t i = 0; i < kMostNorms; ++i) {
    const int blocks = i < layers.size() ? norm_blocks(layers[i].most_rows) : 0;
    if (i < layers.size()) launch.layers[i] = layers[i];
    launch.first_block[i + 1] = launch.first_block[i] + blocks;
  }
  return launch;
}

}  // namespace

void run_norms(const std::vector<NormLayer>& layers, cudaStream_t stream) {
  if (layers.empty()) return;
  const NormLaunch all = norms_of(layers);
  launch(norm_kernel, all.first_block[kMostNorms], kThreads, 0, stream, "LayerNorm", all);
}

void run_norms_backward(const std::vector<NormLayer>& layers, cudaStream_t stream) {
  if (layers.empty()) return;
  const NormLaunch all = norms_of(layers);
  launch(norm_backward_kernel, all.first_block[kMostNorms], kThreads, 0, stream, "LayerNorm", all);
}

}  // namespace gipo::cuda
