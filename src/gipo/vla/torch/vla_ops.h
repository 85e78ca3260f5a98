// What the large model is computed with, over tensors: the kernels of vla_kernels.h and attention, wherever those tensors are.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gipo/vla/torch/vla_kernels.h"

namespace gipo {

using at::Tensor;

// Sequences that follow each other in the rows of a tensor.
struct Lengths {
  std::vector<std::int64_t> starts;  // of each, and the end of the last
  Tensor device;                     // the same, int32
  std::int64_t longest = 0;
  bool equal = true;
};
Lengths make_lengths(const std::vector<std::int64_t>& sizes, at::Device device);

struct Attended {
  Tensor out;                // [rows, heads, size]
  std::vector<Tensor> kept;  // what the gradient needs beside it
};
// Each row of a sequence sees all of that sequence. q [rows of queries, heads, size]; k, v [rows, heads, size].
Attended attend(const Tensor& q, const Tensor& k, const Tensor& v, const Lengths& queries, const Lengths& keys);
// By q, k and v: [sequences, rows of each, heads, size], or all rows as one sequence.
std::array<Tensor, 3> attend_gradient(const Tensor& by_out, const Tensor& q, const Tensor& k, const Tensor& v,
                                      const Attended& forward, const Lengths& queries, const Lengths& keys);

// x + y, and that normed. y may be undefined: then the first is x itself.
std::pair<Tensor, Tensor> add_norm(const Tensor& x, const Tensor& y, const Tensor& weight, double epsilon);
// by_x and normed again. by_weight, where defined, is added to. by_sum may be undefined.
std::pair<Tensor, Tensor> norm_gradient(const Tensor& x, const Tensor& weight, const Tensor& by_normed,
                                        const Tensor& by_sum, const Tensor& by_weight, double epsilon);
// In place. x [rows, parts, heads, size].
void rotate(const Tensor& x, std::int64_t turned, const Tensor& position, const Tensor& table, bool inverse);
// Parts as attend_gradient gives them, put together and turned back: [rows, parts, heads, size].
Tensor join_rotated(const std::vector<Tensor>& parts, std::int64_t turned, const Tensor& position, const Tensor& table);
Tensor rotation_table(std::int64_t positions, std::int64_t size, double theta, at::Device device);
Tensor gate_product(const Tensor& gate_up);
// The product again; gate_up becomes the gradient by it.
Tensor gate_gradient(const Tensor& gate_up, const Tensor& by_product);

// Rows in 8-bit floats, and what each was divided by.
struct Fp8 {
  Tensor values, scale;  // [rows, width], [rows, 1]
};
Fp8 make_fp8(std::int64_t rows, std::int64_t width, at::Device device);
void to_fp8(const Tensor& x, const Fp8& to);
Tensor fp8_product(const Tensor& x, const Fp8& weight);  // x times weight turned, of x's type

// Both; on a card at the same time.
void run_both(const std::function<void()>& one, const std::function<void()>& other, at::Device device);
void run_head(const HeadOptions& options, const HeadArrays& arrays, at::Device device);
void run_adamw(const AdamWArrays& arrays, at::Device device);
void run_average(const Tensor& value, const Tensor& average, const Tensor& low, double step);

// Work on a card whose shapes and addresses stay the same, recorded and then launched as one.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  virtual void replay() = 0;
};
// Runs the work a few times, so that all that is made at a first time is there, and records it. What it makes stays where
// it is while this lives.
std::unique_ptr<RecordedWork> record_work(const std::function<void()>& work);

// f with each of these arrays, one after the other, where the processor can read it; the next is copied meanwhile. From a card by
// a stream of its own: what is still being computed is not waited for.
void each_on_host(const std::vector<Tensor>& arrays, const std::function<void(const Tensor& host)>& f);

// Of a CUDA device.
double device_bytes(at::Device device);       // free now
double device_peak_bytes(at::Device device);  // most that was in use since the last call
void device_wait(at::Device device);
// Throws Error, saying what there is, for a name that is no device here.
at::Device find_device(const std::string& name);

}  // namespace gipo
