#include "gipo/vla/torch/vla_ops.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/vla/torch/torch_graph.h"

#ifdef GIPO_TORCH_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#endif

namespace gipo {
namespace {

Value type_of(const Tensor& x) { return x.scalar_type() == at::kFloat ? Value::kFloat : Value::kBf16; }
const void* data_of(const Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }

// The one place that knows whether a card's kernels are there.
#ifdef GIPO_TORCH_CUDA
Stream stream_of(at::Device device) { return c10::cuda::getCurrentCUDAStream(device.index()).stream(); }
#define GIPO_RUN(name, device, ...) \
  (device).is_cuda() ? device_##name(__VA_ARGS__, stream_of(device)) : host_##name(__VA_ARGS__)
#else
#define GIPO_RUN(name, device, ...) \
  GIPO_CHECK(!(device).is_cuda());  \
  host_##name(__VA_ARGS__)
#endif

// [rows, heads, size] as attention on the host takes one sequence.
Tensor sequence(const Tensor& x, const Lengths& lengths, std::size_t i) {
  return x.slice(0, lengths.starts[i], lengths.starts[i + 1]).transpose(0, 1).unsqueeze(0);
}
Tensor rows_of(const Tensor& x) { return x.squeeze(0).transpose(0, 1); }

// cuDNN's attention is nearly twice as fast as the one for sequences of any lengths, but its gradient's bytes may differ
// from time to time.
bool takes_cudnn(const Tensor& q, const Lengths& queries, const Lengths& keys) {
  return q.is_cuda() && queries.equal && keys.equal && queries.longest == keys.longest &&
         !at::globalContext().deterministicAlgorithms();
}
Tensor in_sequences(const Tensor& x, const Lengths& lengths) {  // [sequences, heads, rows of each, size]
  return x.view({-1, lengths.longest, x.size(1), x.size(2)}).transpose(1, 2);
}
Tensor in_rows(const Tensor& x) { return x.transpose(1, 2).reshape({-1, x.size(1), x.size(3)}); }

}  // namespace

Lengths make_lengths(const std::vector<std::int64_t>& sizes, at::Device device) {
  Lengths lengths{{0}, {}, 0, true};
  for (const std::int64_t size : sizes) {
    lengths.starts.push_back(lengths.starts.back() + size);
    lengths.longest = std::max(lengths.longest, size);
    lengths.equal &= size == sizes[0];
  }
  lengths.device = at::tensor(lengths.starts, at::kInt).to(device);
  return lengths;
}

Attended attend(const Tensor& q, const Tensor& k, const Tensor& v, const Lengths& queries, const Lengths& keys) {
  if (takes_cudnn(q, queries, keys)) {
    auto [out, sums, q_starts, k_starts, q_most, k_most, seed, offset, mask] = at::_scaled_dot_product_cudnn_attention(
        in_sequences(q, queries), in_sequences(k, keys), in_sequences(v, keys), {}, true);
    return {in_rows(out), {sums, seed, offset}};
  }
  if (q.is_cuda()) {
    auto [out, sums, state, unused, mask] = at::_flash_attention_forward(
        q, k, v, queries.device, keys.device, queries.longest, keys.longest, 0, false, false);
    return {out, {sums, state, unused}};
  }
  Attended all{at::empty(q.sizes(), q.options()), {}};
  for (std::size_t i = 0; i + 1 < queries.starts.size(); ++i) {
    auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(sequence(q, queries, i), sequence(k, keys, i),
                                                                       sequence(v, keys, i));
    all.out.slice(0, queries.starts[i], queries.starts[i + 1]).copy_(rows_of(out));
    all.kept.push_back(sums);
  }
  return all;
}

std::array<Tensor, 3> attend_gradient(const Tensor& by_out, const Tensor& q, const Tensor& k, const Tensor& v,
                                      const Attended& forward, const Lengths& queries, const Lengths& keys) {
  if (takes_cudnn(q, queries, keys)) {
    auto [by_q, by_k, by_v] = at::_scaled_dot_product_cudnn_attention_backward(
        in_sequences(by_out, queries), in_sequences(q, queries), in_sequences(k, keys), in_sequences(v, keys),
        in_sequences(forward.out, queries), forward.kept[0], forward.kept[1], forward.kept[2], Tensor(), Tensor(),
        Tensor(), queries.longest, keys.longest, 0, false);
    return {by_q.transpose(1, 2), by_k.transpose(1, 2), by_v.transpose(1, 2)};
  }
  if (q.is_cuda()) {
    auto [by_q, by_k, by_v] =
        at::_flash_attention_backward(by_out, q, k, v, forward.out, forward.kept[0], queries.device, keys.device,
                                      queries.longest, keys.longest, 0, false, forward.kept[1], forward.kept[2]);
    return {by_q.unsqueeze(0), by_k.unsqueeze(0), by_v.unsqueeze(0)};
  }
  std::array<Tensor, 3> by{at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
                           at::empty(v.sizes(), v.options())};
  for (std::size_t i = 0; i + 1 < queries.starts.size(); ++i) {
    const auto [by_q, by_k, by_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        sequence(by_out, queries, i), sequence(q, queries, i), sequence(k, keys, i), sequence(v, keys, i),
        sequence(forward.out, queries, i), forward.kept[i], 0, false);
    by[0].slice(0, queries.starts[i], queries.starts[i + 1]).copy_(rows_of(by_q));
    by[1].slice(0, keys.starts[i], keys.starts[i + 1]).copy_(rows_of(by_k));
    by[2].slice(0, keys.starts[i], keys.starts[i + 1]).copy_(rows_of(by_v));
  }
  for (Tensor& part : by) part = part.unsqueeze(0);
  return by;
}

std::pair<Tensor, Tensor> add_norm(const Tensor& x, const Tensor& y, const Tensor& weight, double epsilon) {
  const Tensor sum = y.defined() ? at::empty_like(x) : x, normed = at::empty_like(x);
  const AddNorm a{type_of(x),
                  x.size(0),
                  x.size(1),
                  data_of(x),
                  data_of(y),
                  data_of(weight),
                  sum.mutable_data_ptr(),
                  normed.mutable_data_ptr(),
                  static_cast<float>(epsilon)};
  GIPO_RUN(add_norm, x.device(), a);
  return {sum, normed};
}

std::pair<Tensor, Tensor> norm_gradient(const Tensor& x, const Tensor& weight, const Tensor& by_normed,
                                        const Tensor& by_sum, const Tensor& by_weight, double epsilon) {
  const std::int64_t blocks = std::min<std::int64_t>(x.size(0), x.is_cuda() ? 528 : 1);
  const Tensor by_x = at::empty_like(x), normed = at::empty_like(x);
  const Tensor parts = at::empty({blocks, x.size(1)}, x.options().dtype(at::kFloat));
  const NormGradient a{type_of(x),
                       x.size(0),
                       x.size(1),
                       blocks,
                       data_of(x),
                       data_of(weight),
                       data_of(by_normed),
                       data_of(by_sum),
                       by_x.mutable_data_ptr(),
                       normed.mutable_data_ptr(),
                       parts.mutable_data_ptr<float>(),
                       static_cast<float>(epsilon)};
  GIPO_RUN(norm_gradient, x.device(), a);
  if (by_weight.defined()) by_weight.add_(parts.sum(0));
  return {by_x, normed};
}

void rotate(const Tensor& x, std::int64_t turned, const Tensor& position, const Tensor& table, bool inverse) {
  GIPO_CHECK(x.is_contiguous());
  const Rotation a{type_of(x),
                   x.size(0),
                   x.size(1),
                   turned,
                   x.size(2),
                   x.size(3) / 2,
                   x.mutable_data_ptr(),
                   {},
                   0,
                   position.const_data_ptr<std::int32_t>(),
                   table.const_data_ptr<float>(),
                   inverse};
  GIPO_RUN(rotate, x.device(), a);
}

Tensor join_rotated(const std::vector<Tensor>& parts, std::int64_t turned, const Tensor& position,
                    const Tensor& table) {
  const Tensor& one = parts[0];
  const std::int64_t rows = one.size(0) * one.size(1), count = static_cast<std::int64_t>(parts.size());
  const Tensor x = at::empty({rows, count, one.size(2), one.size(3)}, one.options());
  Rotation a{type_of(x),
             rows,
             count,
             turned,
             one.size(2),
             one.size(3) / 2,
             x.mutable_data_ptr(),
             {},
             one.size(1),
             turned > 0 ? position.const_data_ptr<std::int32_t>() : nullptr,
             turned > 0 ? table.const_data_ptr<float>() : nullptr,
             true};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    GIPO_CHECK(parts[i].stride(3) == 1);
    a.from[i] = {parts[i].const_data_ptr(), parts[i].stride(0), parts[i].stride(1), parts[i].stride(2)};
  }
  GIPO_RUN(rotate, x.device(), a);
  return x;
}

Tensor rotation_table(std::int64_t positions, std::int64_t size, double theta, at::Device device) {
  const Tensor table = at::empty({positions, size / 2, 2}, at::kFloat);
  float* to = table.mutable_data_ptr<float>();
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < size / 2; ++i) {
      const double exponent = 2 * static_cast<double>(i) / static_cast<double>(size);
      const double angle = static_cast<double>(p) / std::pow(theta, exponent);
      *to++ = static_cast<float>(std::cos(angle));
      *to++ = static_cast<float>(std::sin(angle));
    }
  }
  return table.to(device);
}

Tensor gate_product(const Tensor& gate_up) {
  const Tensor product = at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
  const GateProduct a{type_of(gate_up),           product.size(0), product.size(1), data_of(gate_up),
                      product.mutable_data_ptr(), nullptr,         nullptr};
  GIPO_RUN(gate_product, gate_up.device(), a);
  return product;
}

Tensor gate_gradient(const Tensor& gate_up, const Tensor& by_product) {
  const Tensor product = at::empty_like(by_product);
  const GateProduct a{type_of(gate_up),           product.size(0),     product.size(1),           data_of(gate_up),
                      product.mutable_data_ptr(), data_of(by_product), gate_up.mutable_data_ptr()};
  GIPO_RUN(gate_product, gate_up.device(), a);
  return product;
}

Fp8 make_fp8(std::int64_t rows, std::int64_t width, at::Device device) {
  return {at::empty({rows, width}, at::TensorOptions(device).dtype(at::kFloat8_e4m3fn)),
          at::empty({rows, 1}, at::TensorOptions(device).dtype(at::kFloat))};
}

void to_fp8(const Tensor& x, const Fp8& to) {
  GIPO_CHECK(x.is_contiguous());
  const Fp8Rows a{type_of(x),
                  x.size(0),
                  x.size(1),
                  data_of(x),
                  static_cast<std::uint8_t*>(to.values.mutable_data_ptr()),
                  to.scale.mutable_data_ptr<float>()};
  GIPO_RUN(fp8_rows, x.device(), a);
}

Tensor fp8_product(const Tensor& x, const Fp8& weight) {
  const Fp8 rows = make_fp8(x.size(0), x.size(1), x.device());
  to_fp8(x, rows);
  if (x.is_cuda()) {
    return at::_scaled_mm(rows.values, weight.values.t(), rows.scale, weight.scale.t(), {}, {}, x.scalar_type(), true);
  }
  const auto floats = [](const Fp8& f) { return f.values.to(at::kFloat).mul_(f.scale); };
  return at::mm(floats(rows), floats(weight).t()).to(x.scalar_type());
}

void run_head(const HeadOptions& options, const HeadArrays& arrays, at::Device device) {
  GIPO_RUN(head, device, options, arrays);
}
void run_adamw(const AdamWArrays& arrays, at::Device device) { GIPO_RUN(adamw, device, arrays); }
void run_average(const Tensor& value, const Tensor& average, const Tensor& low, double step) {
  const AverageArrays a{type_of(value),
                        value.numel(),
                        value.const_data_ptr(),
                        average.mutable_data_ptr(),
                        low.defined() ? low.mutable_data_ptr<std::int16_t>() : nullptr,
                        static_cast<float>(step)};
  GIPO_RUN(average, value.device(), a);
}

#ifdef GIPO_TORCH_CUDA
namespace {

class CudaWork final : public RecordedWork {
 public:
  explicit CudaWork(const std::function<void()>& work) {
    static const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
    c10::cuda::getCurrentCUDAStream().synchronize();
    const c10::cuda::CUDAStreamGuard guard(stream);
    for (int i = 0; i < 3; ++i) work();
    stream.synchronize();
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeRelaxed);
    work();
    graph_.capture_end();
  }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<RecordedWork> record_work(const std::function<void()>& work) {
  return std::make_unique<CudaWork>(work);
}
double device_bytes(at::Device device) {
  std::size_t available = 0, total = 0;
  c10::cuda::set_device(device.index());
  c10::cuda::CUDACachingAllocator::emptyCache();  // what others have given back
  if (cudaMemGetInfo(&available, &total) != cudaSuccess) throw RunError("CUDA does not say how much memory is free");
  return static_cast<double>(available);
}
double device_peak_bytes(at::Device device) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  const double peak = static_cast<double>(stats.reserved_bytes[0].peak);
  c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
  return peak;
}
void run_both(const std::function<void()>& one, const std::function<void()>& other, at::Device device) {
  if (!device.is_cuda()) return one(), other();
  const c10::cuda::CUDAStream here = c10::cuda::getCurrentCUDAStream(device.index());
  static const c10::cuda::CUDAStream beside = c10::cuda::getStreamFromPool(false, device.index());
  at::cuda::CUDAEvent begun, done;
  begun.record(here);
  begun.block(beside);
  {
    const c10::cuda::CUDAStreamGuard guard(beside);
    other();
  }
  one();
  done.record(beside);
  done.block(here);
}
void each_on_host(const std::vector<Tensor>& arrays, const std::function<void(const Tensor& host)>& f) {
  if (arrays.empty() || !arrays[0].is_cuda()) {
    for (const Tensor& array : arrays) f(array);
    return;
  }
  static thread_local const c10::cuda::CUDAStream stream =
      c10::cuda::getStreamFromPool(false, arrays[0].device().index());
  struct Copy {
    Tensor host;
    at::cuda::CUDAEvent done;
  };
  const auto copy = [&](const Tensor& from) {
    const c10::cuda::CUDAStreamGuard guard(stream);
    Copy c{at::empty_like(from, at::TensorOptions(at::kCPU).pinned_memory(true)), {}};
    c.host.copy_(from, true);
    c.done.record(stream);
    return c;
  };
  Copy now = copy(arrays[0]);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    Copy next;
    if (i + 1 < arrays.size()) next = copy(arrays[i + 1]);
    now.done.synchronize();
    f(now.host);
    now = std::move(next);
  }
}
void device_wait(at::Device device) {
  if (device.is_cuda()) c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
}
#else
std::unique_ptr<RecordedWork> record_work(const std::function<void()>&) { GIPO_NOT_REACHED(); }
double device_bytes(at::Device) { GIPO_NOT_REACHED(); }
double device_peak_bytes(at::Device) { return 0; }
void run_both(const std::function<void()>& one, const std::function<void()>& other, at::Device) { one(), other(); }
void each_on_host(const std::vector<Tensor>& arrays, const std::function<void(const Tensor& host)>& f) {
  for (const Tensor& array : arrays) f(array);
}
void device_wait(at::Device) {}
#endif

at::Device find_device(const std::string& name) {
  const std::vector<std::string> there = graph_devices();
  std::vector<std::string> accepted{"cpu"};
  if (!there.empty()) accepted.emplace_back("cuda");
  for (std::size_t i = 0; i < there.size(); ++i) accepted.push_back(fmt::format("cuda:{}", i));
  if (std::ranges::find(accepted, name) == accepted.end()) {
    throw Error(fmt::format(
        "large model: device {} is not there; there are {}{}", name, fmt::join(accepted, ", "),
        there.empty() ? "; a build with -DGIPO_TORCH_CUDA=ON, on a machine with a CUDA device, has more" : ""));
  }
  return name == "cuda" ? at::Device("cuda:0") : at::Device(name);
}

}  // namespace gipo
