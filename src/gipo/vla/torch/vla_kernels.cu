// What vla_kernels.h says, for a card; arrays of values are bf16. Sums are always taken in the same order.
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "gipo/core/error.h"
#include "gipo/kernels/reduce.cuh"
#include "gipo/vla/torch/vla_kernels.h"

namespace gipo {
namespace {

using cuda::block_max, cuda::warp_max, cuda::warp_sum;

constexpr int kEach = 8;  // values that a thread takes at once: 16 bytes of bf16

struct alignas(16) Eight {
  __nv_bfloat162 pair[4];
};
struct Floats {
  float v[kEach];
};

__device__ inline Floats load(const void* from, std::int64_t at) {
  const Eight e = *reinterpret_cast<const Eight*>(static_cast<const __nv_bfloat16*>(from) + at);
  Floats f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = __bfloat1622float2(e.pair[i]);
    f.v[2 * i] = two.x;
    f.v[2 * i + 1] = two.y;
  }
  return f;
}
__device__ inline void store(void* to, std::int64_t at, const Floats& f) {
  Eight e;
#pragma unroll
  for (int i = 0; i < 4; ++i) e.pair[i] = __floats2bfloat162_rn(f.v[2 * i], f.v[2 * i + 1]);
  *reinterpret_cast<Eight*>(static_cast<__nv_bfloat16*>(to) + at) = e;
}

// Both sums over a block; room: 2 floats for each of up to 32 warps.
__device__ inline float2 block_sums(float a, float b, float2* room) {
  a = warp_sum(a), b = warp_sum(b);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  if (lane == 0) room[warp] = make_float2(a, b);
  __syncthreads();
  const float2 mine = lane < warps ? room[lane] : make_float2(0, 0);
  const float2 sums = make_float2(warp_sum(mine.x), warp_sum(mine.y));
  __syncthreads();
  return sums;
}

// A block for each row.
template <int kVectors>
__global__ void __launch_bounds__(512) add_norm_kernel(const __grid_constant__ AddNorm a) {
  __shared__ float2 room[32];
  const std::int64_t row = blockIdx.x, begin = row * a.width;
  Floats x[kVectors];
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const std::int64_t i = (k * static_cast<std::int64_t>(blockDim.x) + threadIdx.x) * kEach;
    if (i >= a.width) continue;
    x[k] = load(a.x, begin + i);
    if (a.y != nullptr) {
      const Floats y = load(a.y, begin + i);
#pragma unroll
      for (int j = 0; j < kEach; ++j) x[k].v[j] = __bfloat162float(__float2bfloat16_rn(x[k].v[j] + y.v[j]));
    }
    if (a.sum != a.x || a.y != nullptr) store(a.sum, begin + i, x[k]);
#pragma unroll
    for (int j = 0; j < kEach; ++j) squares += x[k].v[j] * x[k].v[j];
  }
  const float r = rsqrtf(block_sums(squares, 0, room).x / static_cast<float>(a.width) + a.epsilon);
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const std::int64_t i = (k * static_cast<std::int64_t>(blockDim.x) + threadIdx.x) * kEach;
    if (i >= a.width) continue;
    const Floats w = load(a.weight, i);
#pragma unroll
    for (int j = 0; j < kEach; ++j) x[k].v[j] *= r * w.v[j];
    store(a.normed, begin + i, x[k]);
  }
}

// A block for each range of rows.
template <int kVectors>
__global__ void __launch_bounds__(512) norm_gradient_kernel(const __grid_constant__ NormGradient a) {
  __shared__ float2 room[32];
  const std::int64_t rows_of_block = (a.rows + a.blocks - 1) / a.blocks;
  const std::int64_t first = blockIdx.x * rows_of_block, end = smaller_of<std::int64_t>(first + rows_of_block, a.rows);
  Floats w[kVectors], part[kVectors] = {};
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const std::int64_t i = (k * static_cast<std::int64_t>(blockDim.x) + threadIdx.x) * kEach;
    if (i < a.width) w[k] = load(a.weight, i);
  }
  for (std::int64_t row = first; row < end; ++row) {
    const std::int64_t begin = row * a.width;
    Floats x[kVectors], by[kVectors], beside[kVectors] = {};
    float squares = 0, along = 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const std::int64_t i = (k * static_cast<std::int64_t>(blockDim.x) + threadIdx.x) * kEach;
      if (i >= a.width) continue;
      x[k] = load(a.x, begin + i);
      by[k] = load(a.by_normed, begin + i);
      if (a.by_sum != nullptr) beside[k] = load(a.by_sum, begin + i);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        squares += x[k].v[j] * x[k].v[j];
        along += by[k].v[j] * w[k].v[j] * x[k].v[j];
      }
    }
    const float2 sums = block_sums(squares, along, room);
    const float width = static_cast<float>(a.width), r = rsqrtf(sums.x / width + a.epsilon);
    const float back = sums.y / width * r * r * r;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const std::int64_t i = (k * static_cast<std::int64_t>(blockDim.x) + threadIdx.x) * kEach;
      if (i >= a.width) continue;
      Floats normed;
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const float value = x[k].v[j];
        part[k].v[j] += by[k].v[j] * value * r;
        normed.v[j] = value * r * w[k].v[j];
        beside[k].v[j] += by[k].v[j] * w[k].v[j] * r - value * back;
      }
      store(a.normed, begin + i, normed);
      store(a.by_x, begin + i, beside[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const std::int64_t i = (k * static_cast<std::int64_t>(blockDim.x) + threadIdx.x) * kEach;
    if (i >= a.width) continue;
#pragma unroll
    for (int j = 0; j < kEach; ++j) a.parts[blockIdx.x * a.width + i + j] = part[k].v[j];
  }
}

// A thread for each eight pairs.
__global__ void __launch_bounds__(256) rotate_kernel(const __grid_constant__ Rotation a) {
  const bool apart = a.from[0].data != nullptr;
  const bool plain = a.turned == 0;  // parts are put together, no more
  const std::int64_t of_head = (plain ? 2 * a.half : a.half) / kEach;
  const std::int64_t of_row = (apart ? a.parts : a.turned) * a.heads * of_head;
  const std::int64_t at = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (at >= a.rows * of_row) return;
  const std::int64_t row = at / of_row, head = at % of_row / of_head, i = at % of_head * kEach;
  const std::int64_t begin = (row * a.parts * a.heads + head) * 2 * a.half + i, part = head / a.heads;
  const void* source = a.x;
  std::int64_t from = begin;
  if (apart) {
    const Rotation::Part p = part == 0 ? a.from[0] : part == 1 ? a.from[1] : a.from[2];
    source = p.data;
    from = row / a.each * p.sequence + row % a.each * p.row + head % a.heads * p.head + i;
  }
  if (plain) return store(a.x, begin, load(source, from));
  Floats one = load(source, from), two = load(source, from + a.half);
  if (part < a.turned) {
    const float2* angle = reinterpret_cast<const float2*>(a.table) + a.position[row] * a.half + i;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float2 turn = angle[j];
      const float s = a.inverse ? -turn.y : turn.y, x = one.v[j], y = two.v[j];
      one.v[j] = x * turn.x - y * s;
      two.v[j] = y * turn.x + x * s;
    }
  }
  store(a.x, begin, one);
  store(a.x, begin + a.half, two);
}

__global__ void __launch_bounds__(256) gate_kernel(const __grid_constant__ GateProduct a) {
  const std::int64_t of_row = a.hidden / kEach;
  const std::int64_t at = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (at >= a.rows * of_row) return;
  const std::int64_t gate_at = at / of_row * 2 * a.hidden + at % of_row * kEach, up_at = gate_at + a.hidden;
  Floats gate = load(a.gate_up, gate_at), up = load(a.gate_up, up_at), product;
  if (a.by_product == nullptr) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) product.v[j] = silu_product(gate.v[j], up.v[j]);
  } else {
    const Floats by = load(a.by_product, at * kEach);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const GateGradient g = silu_gradient(gate.v[j], up.v[j], by.v[j]);
      gate.v[j] = g.gate, up.v[j] = g.up, product.v[j] = g.product;
    }
    store(a.by_gate_up, gate_at, gate);
    store(a.by_gate_up, up_at, up);
  }
  store(a.product, at * kEach, product);
}

// A block for each row.
template <int kVectors>
__global__ void __launch_bounds__(512) fp8_rows_kernel(const __grid_constant__ Fp8Rows a) {
  __shared__ float room[32];
  const std::int64_t begin = blockIdx.x * a.width;
  Floats x[kVectors];
  float most = 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const std::int64_t i = (k * static_cast<std::int64_t>(blockDim.x) + threadIdx.x) * kEach;
    if (i >= a.width) continue;
    x[k] = load(a.x, begin + i);
#pragma unroll
    for (int j = 0; j < kEach; ++j) most = fmaxf(most, fabsf(x[k].v[j]));
  }
  const float scale = fp8_scale(block_max(most, room)), inverse = 1 / scale;
  if (threadIdx.x == 0) a.scale[blockIdx.x] = scale;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const std::int64_t i = (k * static_cast<std::int64_t>(blockDim.x) + threadIdx.x) * kEach;
    if (i >= a.width) continue;
    alignas(8) __nv_fp8x2_storage_t eight[kEach / 2];
#pragma unroll
    for (int j = 0; j < kEach / 2; ++j) {
      const float2 two = make_float2(x[k].v[2 * j] * inverse, x[k].v[2 * j + 1] * inverse);
      eight[j] = __nv_cvt_float2_to_fp8x2(two, __NV_SATFINITE, __NV_E4M3);
    }
    *reinterpret_cast<uint2*>(a.to + begin + i) = *reinterpret_cast<const uint2*>(eight);
  }
}

// A block for each chunk, a warp for each token in turn: logits to multipliers and gradient, read twice.
constexpr int kHeadThreads = 512, kMostTokens = 256;
__global__ void __launch_bounds__(kHeadThreads)
    head_kernel(const __grid_constant__ HeadOptions o, const __grid_constant__ HeadArrays a) {
  __shared__ float norm[kMostTokens], entropy[kMostTokens], log_prob[kMostTokens], multiplier[kMostTokens];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = kHeadThreads / 32;
  const int tokens = static_cast<int>(o.tokens), each = static_cast<int>(o.each), ratios = tokens / each;
  const std::int64_t n = blockIdx.x, first = n * tokens;
  for (int t = warp; t < tokens; t += warps) {
    const float* logits = a.logits + (first + t) * kHeadChoices;
    float z[kHeadChoices / 32], top = -HUGE_VALF, sum = 0, weighted = 0;
#pragma unroll
    for (int k = 0; k < kHeadChoices / 32; ++k) top = fmaxf(top, z[k] = logits[k * 32 + lane] / o.temperature);
    top = warp_max(top);
#pragma unroll
    for (int k = 0; k < kHeadChoices / 32; ++k) {
      const float e = std::exp(z[k] - top);
      sum += e;
      weighted += e * (z[k] - top);
    }
    sum = warp_sum(sum), weighted = warp_sum(weighted);
    if (lane == 0) {
      norm[t] = top + std::log(sum);
      entropy[t] = std::log(sum) - weighted / sum;
      log_prob[t] = logits[a.action[first + t]] / o.temperature - norm[t];
      a.entropy[first + t] = entropy[t];
      a.log_prob[first + t] = log_prob[t];
    }
  }
  __syncthreads();
  const float advantage = a.advantage[n], age = a.age != nullptr ? a.age[n] : 0.0f;
  for (int j = threadIdx.x; j < ratios; j += kHeadThreads) {
    float to_policy = 0, to_centre = 0;
    for (int t = j * each; t < (j + 1) * each; ++t) {
      to_policy += log_prob[t] - a.behaviour[first + t];
      if (o.centred) to_centre += a.centre[first + t] - a.behaviour[first + t];
    }
    const RatioTerm r = ratio_term(o, to_policy, to_centre, advantage, age);
    multiplier[j] = r.multiplier;
    a.log_ratio[n * ratios + j] = r.log_ratio;
    a.multiplier[n * ratios + j] = r.multiplier;
    a.loss[n * ratios + j] = r.loss;
  }
  __syncthreads();
  for (int t = warp; a.d_logits != nullptr && t < tokens; t += warps) {
    const std::int64_t begin = (first + t) * kHeadChoices;
    const float by_log_prob = -multiplier[t / each] * advantage * o.weight;
    const int action = a.action[first + t];
#pragma unroll
    for (int k = 0; k < kHeadChoices / 32; ++k) {
      const int choice = k * 32 + lane;
      const float log_p = a.logits[begin + choice] / o.temperature - norm[t];
      a.d_logits[begin + choice] = d_logit(o, log_p, choice == action, by_log_prob, entropy[t]);
    }
  }
}

struct alignas(16) EightShorts {
  std::uint16_t v[kEach];
};
__global__ void __launch_bounds__(256) adamw_kernel(const __grid_constant__ AdamWArrays a) {
  const std::int64_t at = (blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x) * kEach;
  if (at >= a.count) return;
  const float norm = *a.norm;
  if (!isfinite(norm)) return;
  AdamWStep<float> step = a.step;
  step.scale = smaller_of(1.0f, a.max_norm / (norm + 1e-6f));
  auto* const values = reinterpret_cast<EightShorts*>(static_cast<std::uint16_t*>(a.value) + at);
  auto* const lows = reinterpret_cast<EightShorts*>(a.low + at);
  auto* const firsts = reinterpret_cast<float4*>(a.first + at);
  auto* const seconds = reinterpret_cast<float4*>(a.second + at);
  EightShorts high = *values, low = *lows;
  const EightShorts gradient =
      *reinterpret_cast<const EightShorts*>(static_cast<const std::uint16_t*>(a.gradient) + at);
  float4 first[2] = {firsts[0], firsts[1]}, second[2] = {seconds[0], seconds[1]};
  float* const m = reinterpret_cast<float*>(first);
  float* const v = reinterpret_cast<float*>(second);
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    float parameter = join({high.v[j], static_cast<std::int16_t>(low.v[j])});
    adamw_step(step, from_bf16(gradient.v[j]), parameter, m[j], v[j]);
    const SplitFloat parts = split(parameter);
    high.v[j] = parts.high;
    low.v[j] = static_cast<std::uint16_t>(parts.low);
  }
  *values = high, *lows = low;
  firsts[0] = first[0], firsts[1] = first[1], seconds[0] = second[0], seconds[1] = second[1];
}

__global__ void __launch_bounds__(256) average_kernel(const __grid_constant__ AverageArrays a) {
  const std::int64_t at = (blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x) * kEach;
  if (at >= a.count) return;
  auto* const highs = reinterpret_cast<EightShorts*>(static_cast<std::uint16_t*>(a.average) + at);
  auto* const lows = reinterpret_cast<EightShorts*>(a.low + at);
  const EightShorts values = *reinterpret_cast<const EightShorts*>(static_cast<const std::uint16_t*>(a.value) + at);
  EightShorts high = *highs, low = *lows;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const float average = join({high.v[j], static_cast<std::int16_t>(low.v[j])});
    const SplitFloat parts = split(average + a.step * (from_bf16(values.v[j]) - average));
    high.v[j] = parts.high;
    low.v[j] = static_cast<std::uint16_t>(parts.low);
  }
  *highs = high, *lows = low;
}

void check(const char* what) {
  const cudaError_t result = cudaGetLastError();
  if (result != cudaSuccess) throw RunError(std::string(what) + ": " + cudaGetErrorString(result));
}
unsigned blocks_for(std::int64_t threads) { return static_cast<unsigned>((threads + 255) / 256); }
// Threads of a block that has a row of this width, and how many vectors each of them takes.
int row_threads(std::int64_t width) {
  return static_cast<int>(std::clamp<std::int64_t>((width / kEach + 31) / 32 * 32, 32, 512));
}
int vectors_of(std::int64_t width) {
  return static_cast<int>((width + row_threads(width) * kEach - 1) / (row_threads(width) * kEach));
}
cudaStream_t stream_of(Stream stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

void device_add_norm(const AddNorm& a, Stream stream) {
  if (a.rows == 0) return;
  GIPO_CHECK(a.type == Value::kBf16 && vectors_of(a.width) <= 2);
  const auto kernel = vectors_of(a.width) == 1 ? add_norm_kernel<1> : add_norm_kernel<2>;
  kernel<<<static_cast<unsigned>(a.rows), row_threads(a.width), 0, stream_of(stream)>>>(a);
  check("add_norm");
}

void device_norm_gradient(const NormGradient& a, Stream stream) {
  GIPO_CHECK(a.type == Value::kBf16 && vectors_of(a.width) <= 2);
  const auto kernel = vectors_of(a.width) == 1 ? norm_gradient_kernel<1> : norm_gradient_kernel<2>;
  kernel<<<static_cast<unsigned>(a.blocks), row_threads(a.width), 0, stream_of(stream)>>>(a);
  check("norm_gradient");
}

void device_rotate(const Rotation& a, Stream stream) {
  GIPO_CHECK(a.type == Value::kBf16 && (a.turned == 0 ? 2 * a.half : a.half) % kEach == 0);
  if (a.rows == 0) return;
  const std::int64_t parts = a.from[0].data != nullptr ? a.parts : a.turned;
  rotate_kernel<<<blocks_for(a.rows * parts * a.heads * (a.turned == 0 ? 2 * a.half : a.half) / kEach), 256, 0,
                  stream_of(stream)>>>(a);
  check("rotate");
}

void device_gate_product(const GateProduct& a, Stream stream) {
  GIPO_CHECK(a.type == Value::kBf16 && a.hidden % kEach == 0);
  if (a.rows == 0) return;
  gate_kernel<<<blocks_for(a.rows * a.hidden / kEach), 256, 0, stream_of(stream)>>>(a);
  check("gate_product");
}

void device_fp8_rows(const Fp8Rows& a, Stream stream) {
  GIPO_CHECK(a.type == Value::kBf16 && a.width % kEach == 0 && vectors_of(a.width) <= 4);
  if (a.rows == 0) return;
  const int vectors = vectors_of(a.width);
  const auto kernel = vectors == 1 ? fp8_rows_kernel<1> : vectors == 2 ? fp8_rows_kernel<2> : fp8_rows_kernel<4>;
  kernel<<<static_cast<unsigned>(a.rows), row_threads(a.width), 0, stream_of(stream)>>>(a);
  check("fp8_rows");
}

void device_head(const HeadOptions& o, const HeadArrays& a, Stream stream) {
  GIPO_CHECK(o.tokens <= kMostTokens && o.tokens % o.each == 0);
  if (o.n == 0) return;
  head_kernel<<<static_cast<unsigned>(o.n), kHeadThreads, 0, stream_of(stream)>>>(o, a);
  check("head");
}

void device_adamw(const AdamWArrays& a, Stream stream) {
  GIPO_CHECK(a.type == Value::kBf16 && a.count % kEach == 0);
  if (a.count == 0) return;
  adamw_kernel<<<blocks_for(a.count / kEach), 256, 0, stream_of(stream)>>>(a);
  check("adamw");
}

void device_average(const AverageArrays& a, Stream stream) {
  GIPO_CHECK(a.type == Value::kBf16 && a.count % kEach == 0);
  if (a.count == 0) return;
  average_kernel<<<blocks_for(a.count / kEach), 256, 0, stream_of(stream)>>>(a);
  check("average");
}

}  // namespace gipo
