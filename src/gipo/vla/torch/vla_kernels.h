// The kernels of the large model over plain arrays: for the host, and with the same arguments and a stream for a card.
// Values are float or bf16 (Value::kBf16), sums always float.
#pragma once

#include <cstdint>

#include "gipo/vla/vla_terms.h"

namespace gipo {

enum class Value { kFloat, kBf16 };
using Stream = void*;  // cudaStream_t; the host has none

// sum = x + y (y null: x), normed = sum / rms(sum) * weight. x and sum may be one.
struct AddNorm {
  Value type;
  std::int64_t rows, width;
  const void *x, *y, *weight;
  void *sum, *normed;
  float epsilon;
};
// Of normed = x / rms(x) * weight: by_x = by_sum + what comes through the norm; normed again; and in `parts`, for each of
// `blocks` ranges of rows, the sums that by_weight consists of. by_sum null: nothing comes beside the norm.
struct NormGradient {
  Value type;
  std::int64_t rows, width, blocks;
  const void *x, *weight, *by_normed, *by_sum;
  void *by_x, *normed;
  float* parts;  // [blocks, width]
  float epsilon;
};
// x [rows, parts, heads, 2 half]: of the first `turned` parts each pair (i, i + half) is turned by the angle of its row's
// position; with inverse back. table: [positions, half] of cosine and sine.
struct Rotation {
  Value type;
  std::int64_t rows, parts, turned, heads, half;
  void* x;
  struct Part {
    const void* data;
    std::int64_t sequence, row, head;  // steps from one to the next
  };
  Part from[3];       // where given: what x is made of; else x is turned in place
  std::int64_t each;  // rows of a sequence
  const std::int32_t* position;
  const float* table;
  bool inverse;
};
// by_gate_up [rows, 2 hidden] may be gate_up itself; gradient: product is what the forward gave.
struct GateProduct {
  Value type;
  std::int64_t rows, hidden;
  const void* gate_up;
  void* product;           // [rows, hidden]
  const void* by_product;  // null: forward
  void* by_gate_up;
};
// Each row divided by a scale of its own, so that its largest value is the largest of an 8-bit float (e4m3), and rounded to those.
struct Fp8Rows {
  Value type;
  std::int64_t rows, width;
  const void* x;
  std::uint8_t* to;
  float* scale;  // [rows]
};
// One step for `count` parameters, a multiple of 8. bf16: the parameter is value and low together. norm: of all gradients;
// where it is not finite nothing is changed.
struct AdamWArrays {
  Value type;
  std::int64_t count;
  void* value;
  std::int16_t* low;
  const void* gradient;
  float *first, *second;
  const float* norm;
  float max_norm;
  AdamWStep<float> step;  // its scale is not read
};
// average += step (value - average), of `count` values, a multiple of 8. bf16: the average is `average` and `low` together.
struct AverageArrays {
  Value type;
  std::int64_t count;
  const void* value;
  void* average;
  std::int16_t* low;
  float step;
};

void host_add_norm(const AddNorm& a);
void host_norm_gradient(const NormGradient& a);
void host_rotate(const Rotation& a);
void host_gate_product(const GateProduct& a);
void host_fp8_rows(const Fp8Rows& a);
void host_head(const HeadOptions& o, const HeadArrays& a);
void host_adamw(const AdamWArrays& a);
void host_average(const AverageArrays& a);

// Only in a build with GIPO_TORCH_CUDA.
void device_add_norm(const AddNorm& a, Stream stream);
void device_norm_gradient(const NormGradient& a, Stream stream);
void device_rotate(const Rotation& a, Stream stream);
void device_gate_product(const GateProduct& a, Stream stream);
void device_fp8_rows(const Fp8Rows& a, Stream stream);
void device_head(const HeadOptions& o, const HeadArrays& a, Stream stream);
void device_adamw(const AdamWArrays& a, Stream stream);
void device_average(const AverageArrays& a, Stream stream);

}  // namespace gipo
