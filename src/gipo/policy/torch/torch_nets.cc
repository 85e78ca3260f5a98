#include "gipo/policy/torch/torch_nets.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gipo/core/error.h"

namespace gipo {
namespace {

using torch::Tensor;

// Products in bfloat16 while it lives.
class Autocast {
 public:
  explicit Autocast(bool on) : on_(on) {
    if (!on_) return;
    at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
    at::autocast::set_autocast_cache_enabled(false);  // graphs are recorded once and run often
    at::autocast::set_autocast_enabled(at::kCUDA, true);
  }
  ~Autocast() {
    if (on_) at::autocast::set_autocast_enabled(at::kCUDA, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
};

// A library never prints; what libtorch warns of is how it computes, not what.
struct Silence final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

Tensor some_rows(const Tensor& x, std::size_t begin, std::size_t rows) {
  return x.defined() ? x.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(rows)) : x;
}

}  // namespace

void stay_on_this_thread() {
#ifdef __aarch64__  // there oneDNN calls the Arm Compute Library, which has threads of its own whatever is said
  static const bool without = (at::globalContext().setUserEnabledMkldnn(false), true);
  static_cast<void>(without);
#endif
  static Silence silence;
  static thread_local const bool once =
      (at::set_num_threads(1), c10::WarningUtils::set_warning_handler(&silence), true);
  static_cast<void>(once);
}

// libtorch says what it tried to allocate and what is free, and then much about itself.
std::string out_of_memory(const std::string& device, const std::string& said) {
  const std::size_t begin = std::min(said.find("Tried to allocate"), said.size()), end = said.find(" is free", begin);
  const std::string asked =
      end == std::string::npos ? said.substr(0, said.find('\n')) : said.substr(begin, end - begin) + " is free";
  return fmt::format(
      "learner.device = \"{}\" has not enough memory: {}. Lower learner.batch_size or env.count; what the run has "
      "saved stays as it is",
      device, asked);
}

Tensor first_rows(const Tensor& x, std::size_t rows) { return some_rows(x, 0, rows); }

Tensor rows_of(const Field& field, const std::byte* column, std::int64_t rows, torch::Device device) {
  std::vector<std::int64_t> shape = {rows};
  shape.insert(shape.end(), field.shape.begin(), field.shape.end());
  const auto type = field.dtype == DType::kUint8     ? torch::kUInt8
                    : field.dtype == DType::kInt32   ? torch::kInt32
                    : field.dtype == DType::kInt64   ? torch::kInt64
                    : field.dtype == DType::kFloat32 ? torch::kFloat32
                                                     : torch::kFloat64;
  return torch::from_blob(const_cast<std::byte*>(column), shape, torch::TensorOptions().dtype(type).device(device));
}

Tensor as_input(const Field& field, Encoder encoder, Tensor x) {
  const std::int64_t rows = x.size(0);
  if (encoder == Encoder::kEmbedding) return x.to(torch::kInt64).reshape({rows, -1});
  const ImageShape image = image_shape(field);
  x = x.to(torch::kFloat32);
  if (field.image()) x.mul_(1.0 / 255);
  if (image.channels_last) {  // of each frame
    x = x.reshape({rows, field.stack, image.height, image.width, -1}).permute({0, 1, 4, 2, 3}).contiguous();
  }
  x = x.reshape({rows, image.channels, image.height, image.width});
  return x.is_cpu() ? x : x.contiguous(at::MemoryFormat::ChannelsLast);  // what the tensor cores of a card want
}

TorchNetwork::TorchNetwork(const ModelSpec& spec, Part part) : spec_(spec), part_(part) {
  const PolicyOptions& o = spec.options;
  shared_ = static_cast<std::size_t>(o.shared);
  const bool policy = part == Part::kPolicy;
  const Widths own(o.hidden.begin() + o.shared, o.hidden.end());
  hidden_ = policy ? o.hidden : o.critic_hidden.value_or(own);
  outputs_ = policy ? static_cast<std::int64_t>(spec.distribution.outputs()) : 1;
  NetworkInput<NetworkLayout::Value> in;
  const std::size_t floats = floats_read();
  if (floats > 0) in.floats.push_back({static_cast<std::int64_t>(floats)});
  for (std::size_t f = 0; f < spec.fields.size(); ++f) {
    in.raw.push_back(spec.fields[f].raw ? input_of(spec.encoders[f], spec.fields[f]) : NetworkLayout::Value{});
  }
  if (!policy && shared_ > 0) in.floats.insert(in.floats.begin(), {o.hidden[shared_ - 1]});
  layout_.enter("");
  run(layout_, in, 0, layers());
}

std::size_t TorchNetwork::floats_read() const {
  const std::size_t all = spec_.observation_size;
  if (part_ == Part::kPolicy) return all - spec_.privileged;
  return shared_ > 0 ? spec_.privileged : all;
}

void TorchNetwork::bind(float* parameters, bool learns, torch::Device device) {
  const auto options = torch::TensorOptions().device(device);
  tensors_.clear();
  for (const TensorSlice& s : layout_.slices()) {
    tensors_.push_back(torch::from_blob(parameters + s.offset, s.shape, options).set_requires_grad(learns));
  }
}

void TorchNetwork::bind_copy(std::span<const float> parameters, std::int64_t version, bool learns,
                             torch::Device device) {
  float* const host = const_cast<float*>(parameters.data());  // libtorch knows no tensor that is only read
  if (device.is_cpu()) return bind(host, learns, device);
  const Tensor all = torch::from_blob(host, {static_cast<std::int64_t>(layout_.parameter_count())});
  const bool first = !copy_.defined();
  if (first) copy_ = torch::empty_like(all, all.options().device(device));
  const bool same = std::exchange(version_, version) == version && version >= 0;
  if (!same) copy_.copy_(all);
  if (first) bind(copy_.data_ptr<float>(), learns, device);
}

torch::Tensor floats_at(std::span<const float> values, const torch::Device& device) {
  return torch::from_blob(const_cast<float*>(values.data()), {static_cast<std::int64_t>(values.size())},
                          torch::TensorOptions(device));
}

TorchNets::TorchNets(const ModelSpec& spec, bool learns, bool bf16, torch::Device device)
    : spec_(spec),
      learns_(learns),
      bf16_(bf16),
      device_(device),
      shared_(static_cast<std::size_t>(spec.options.shared)),
      policy_(spec, Part::kPolicy),
      critic_(spec, Part::kCritic) {}

// What both share is run at once. The policy's layers after these begin where it ended.
void TorchNets::see(TorchRows seen) {
  seen_ = std::move(seen);
  if (shared_ == 0) return;
  const torch::AutoGradMode gradients(learns_);
  const Autocast autocast(bf16_);
  TorchMemory memory = memory_of(Part::kPolicy, seen_.rows);
  trunk_backend_.emplace(policy_.tensors(), &memory);
  trunk_ = policy_.run(*trunk_backend_, input(Part::kPolicy, 0, seen_.rows), 0, shared_);
  after_ = memory.after;
}

Tensor TorchNets::outputs(std::size_t rows) {
  const torch::AutoGradMode gradients(learns_);
  const Autocast autocast(bf16_);
  Tensor outputs;
  if (shared_ > 0) {
    TorchNetworks b = *trunk_backend_;
    outputs = policy_.run(b, {{first_rows(trunk_, rows)}, {}}, shared_, policy_.layers());
  } else {
    TorchMemory memory = memory_of(Part::kPolicy, rows);
    TorchNetworks b(policy_.tensors(), &memory);
    outputs = policy_.run(b, input(Part::kPolicy, 0, rows), 0, policy_.layers());
    after_ = memory.after;
  }
  return outputs.to(torch::kFloat32).contiguous();
}

Tensor TorchNets::values() {
  const torch::AutoGradMode gradients(learns_);
  const Autocast autocast(bf16_);
  TorchMemory memory = memory_of(Part::kCritic, seen_.rows);
  TorchNetworks b(critic_.tensors(), &memory);
  return critic_.run(b, input(Part::kCritic, 0, seen_.rows), 0, critic_.layers()).to(torch::kFloat32).contiguous();
}

Tensor TorchNets::next_state() {
  GIPO_CHECK(seen_.sequences.empty());
  const torch::NoGradGuard none;
  if (!critic_.remembers()) return after_;
  TorchMemory memory = memory_of(Part::kCritic, seen_.rows);
  TorchNetworks b(critic_.tensors(), &memory);
  critic_.run(b, input(Part::kCritic, 0, seen_.rows), 0, 0);
  return torch::cat({after_, memory.after}, 1);
}

// Of rows [begin, begin + rows).
NetworkInput<Tensor> TorchNets::input(Part part, std::size_t begin, std::size_t rows) const {
  NetworkInput<Tensor> in;
  const auto width = static_cast<std::int64_t>(network(part).floats_read());
  if (part == Part::kCritic && shared_ > 0) in.floats.push_back(some_rows(trunk_, begin, rows).detach());
  const std::int64_t first = part == Part::kCritic ? static_cast<std::int64_t>(spec_.observation_size) - width : 0;
  if (width > 0) in.floats.push_back(some_rows(seen_.floats, begin, rows).narrow(1, first, width));
  for (const Tensor& field : seen_.raw) in.raw.push_back(some_rows(field, begin, rows));
  return in;
}

// Which rows follow each other.
void TorchNets::tell(TorchMemory& memory, const std::vector<std::vector<std::int64_t>>& sequences) const {
  if (spec_.options.memory == Memory::kGru) {
    memory.packed = pack(sequences, device_);
  } else {
    memory.windowed = windows_of(sequences, spec_.options.memory_window, device_);
  }
}

// What a part's recurrent layer is told of the first `rows` rows.
TorchMemory TorchNets::memory_of(Part part, std::size_t rows) const {
  if (!network(part).remembers()) return {};
  TorchMemory memory{before_sequences(part)};
  if (seen_.sequences.empty()) return memory;
  std::vector<std::vector<std::int64_t>> all(seen_.sequences.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Sequence& s = seen_.sequences[i];
    for (std::size_t r = s.begin; r < s.begin + s.length; ++r) all[i].push_back(static_cast<std::int64_t>(r));
    if (s.after < rows) all[i].push_back(static_cast<std::int64_t>(s.after));
  }
  tell(memory, all);
  return memory;
}

// The state after the contexts. No gradient goes back beyond it.
Tensor TorchNets::before_sequences(Part part) const {
  const torch::NoGradGuard none;
  const auto size = static_cast<std::int64_t>(spec_.memory_state());
  TorchMemory memory{seen_.state.narrow(1, part == Part::kPolicy ? 0 : size, size)};
  std::size_t begin = Sequence::kNone, end = 0;
  for (const Sequence& s : seen_.sequences) {
    if (s.context == 0) continue;
    begin = std::min(begin, s.context_begin);
    end = std::max(end, s.context_begin + s.context);
  }
  if (end == 0) return memory.state;
  std::vector<std::vector<std::int64_t>> all(seen_.sequences.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Sequence& s = seen_.sequences[i];
    for (std::size_t r = 0; r < s.context; ++r)
      all[i].push_back(static_cast<std::int64_t>(s.context_begin - begin + r));
  }
  tell(memory, all);
  TorchNetworks b(network(part).tensors(), &memory);
  network(part).run(b, input(part, begin, end - begin), 0, 0);
  return memory.after;
}

}  // namespace gipo
