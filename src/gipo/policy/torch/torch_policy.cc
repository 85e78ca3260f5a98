#include "gipo/policy/torch_policy.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/data/encode.h"
#include "gipo/policy/network_layout.h"
#include "gipo/policy/onnx_networks.h"
#include "gipo/policy/torch/torch_graph.h"
#include "gipo/policy/torch/torch_networks.h"

namespace gipo {
namespace {

using torch::Tensor;

constexpr double kPolicyGain = 0.01, kCriticGain = 1;  // of the first weights at the output

// One of the two networks: where its parameters lie, and the parts that a forward goes through.
class TorchNetwork {
 public:
  TorchNetwork(const ModelSpec& spec, Part part) : spec_(spec), part_(part) {
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

  std::size_t layers() const { return hidden_.size() + 1; }
  const NetworkLayout& layout() const { return layout_; }
  std::int64_t outputs() const { return outputs_; }
  // The critic that reads the policy's layers has what these remember.
  bool remembers() const { return spec_.has_memory() && (part_ == Part::kPolicy || shared_ == 0); }
  // Of the floats of an observation: the policy's come first.
  std::size_t floats_read() const {
    const std::size_t all = spec_.observation_size;
    if (part_ == Part::kPolicy) return all - spec_.privileged;
    return shared_ > 0 ? spec_.privileged : all;
  }

  // Where the parameters lie now; on a device, a copy of them, which stays where it is.
  void bind(std::span<const float> parameters, std::int64_t version, bool learns, torch::Device device) {
    float* const host = const_cast<float*>(parameters.data());  // libtorch knows no tensor that is only read
    const auto count = static_cast<std::int64_t>(layout_.parameter_count());
    if (device.is_cpu()) {
      tensors_.clear();
      for (const TensorSlice& s : layout_.slices()) {
        tensors_.push_back(torch::from_blob(host + s.offset, s.shape).set_requires_grad(learns));
      }
    } else if (tensors_.empty()) {
      flat_ = torch::from_blob(host, {count}).to(device);
      split(flat_, learns);
      version_ = version;
    } else if (version < 0 || std::exchange(version_, version) != version) {
      flat_.copy_(torch::from_blob(host, {count}), true);
    }
  }
  std::span<const Tensor> tensors() const { return tensors_; }

  // Layers [begin, end) of what the encoders, where begin is 0, make of the input.
  template <class B>
  typename B::Value run(B& b, const NetworkInput<typename B::Value>& in, std::size_t begin, std::size_t end) const {
    typename B::Value x = begin > 0 ? in.floats[0] : features(b, in);
    if (begin == 0 && remembers()) x = memory_network(b, spec_.options, std::move(x));
    return layers_network(b, spec_.options, hidden_, outputs_, begin, end, std::move(x));
  }

 private:
  template <class B>
  typename B::Value features(B& b, const NetworkInput<typename B::Value>& in) const {
    if (part_ == Part::kPolicy) return features_network(b, spec_, {Role::kPolicy}, in);
    if (shared_ > 0) return features_network(b, spec_, {Role::kCritic}, in);
    return features_network(b, spec_, {Role::kPolicy, Role::kCritic}, in);
  }

  void split(const Tensor& flat, bool learns) {
    tensors_.clear();
    for (const TensorSlice& s : layout_.slices()) {
      const Tensor part = flat.narrow(0, static_cast<std::int64_t>(s.offset), static_cast<std::int64_t>(s.values()));
      tensors_.push_back(part.view(s.shape).detach().set_requires_grad(learns));
    }
  }

  ModelSpec spec_;
  Part part_;
  std::size_t shared_ = 0;
  Widths hidden_;
  std::int64_t outputs_ = 1;
  NetworkLayout layout_;
  std::vector<Tensor> tensors_;
  Tensor flat_;  // on a device
  std::int64_t version_ = -1;
};

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

// One network's work of one shape on a device, recorded.
struct RecordedNetwork {
  std::unique_ptr<TorchGraph> forward, backward;
  Tensor output;              // [rows, outputs]
  Tensor d_output, gradient;  // the same; [parameters]
  Tensor host;                // the gradient, in memory that the device writes to
};

// One thread a call: which networks run side by side is the caller's business, and bytes do not depend on it. OpenMP counts
// threads for each that calls it.
void stay_on_this_thread() {
#ifdef __aarch64__  // there oneDNN calls the Arm Compute Library, which has threads of its own whatever is said
  static const bool without = (at::globalContext().setUserEnabledMkldnn(false), true);
  static_cast<void>(without);
#endif
  static thread_local const bool once = (at::set_num_threads(1), true);
  static_cast<void>(once);
}

// The rows of a field, where they lie.
Tensor rows_of(const Field& field, const std::byte* column, std::int64_t rows) {
  std::vector<std::int64_t> shape = {rows};
  shape.insert(shape.end(), field.shape.begin(), field.shape.end());
  const auto type = field.dtype == DType::kUint8     ? torch::kUInt8
                    : field.dtype == DType::kInt32   ? torch::kInt32
                    : field.dtype == DType::kInt64   ? torch::kInt64
                    : field.dtype == DType::kFloat32 ? torch::kFloat32
                                                     : torch::kFloat64;
  return torch::from_blob(const_cast<std::byte*>(column), shape, torch::TensorOptions().dtype(type));
}

// As an encoder takes them.
Tensor as_input(const Field& field, Encoder encoder, Tensor x) {
  const std::int64_t rows = x.size(0);
  if (encoder == Encoder::kEmbedding) return x.to(torch::kInt64).reshape({rows, -1});
  const ImageShape image = image_shape(field);
  x = x.to(torch::kFloat32);
  if (field.image()) x.mul_(1.0 / 255);
  if (image.channels_last) {  // of each frame
    x = x.reshape({rows, field.stack, image.height, image.width, -1}).permute({0, 1, 4, 2, 3}).contiguous();
  }
  return x.reshape({rows, image.channels, image.height, image.width});
}

Tensor some_rows(const Tensor& x, std::size_t begin, std::size_t rows) {
  return x.defined() ? x.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(rows)) : x;
}
Tensor first_rows(const Tensor& x, std::size_t rows) { return some_rows(x, 0, rows); }

Tensor joined(const std::vector<Tensor>& gradients) {
  std::vector<Tensor> flat;
  for (const Tensor& g : gradients) flat.push_back(g.flatten());
  return torch::cat(flat);
}

void copy_to(const Tensor& from, std::span<float> out) {
  const Tensor host = from.to(torch::kCPU).contiguous();
  std::copy_n(host.const_data_ptr<float>(), host.numel(), out.data());
}

void copy_gradients(const NetworkLayout& layout, const std::vector<Tensor>& gradients, std::span<float> out) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const TensorSlice& s = layout.slices()[i];
    const Tensor whole = gradients[i].contiguous();
    std::copy_n(whole.const_data_ptr<float>(), s.values(), out.data() + s.offset);
  }
}

class TorchPolicy final : public Policy<float> {
 public:
  TorchPolicy(const ModelSpec& spec, const PolicyRoom& room)
      : spec_(spec),
        room_(room),
        policy_(spec, Part::kPolicy),
        critic_(spec, Part::kCritic),
        shared_(static_cast<std::size_t>(spec.options.shared)),
        pi_(spec.distribution, room.learned),
        mask_field_(mask_field(spec.fields)),
        device_(room.device),
        records_(!device_.is_cpu() && learns() && shared_ == 0 && !spec.has_memory()) {}

  std::vector<TensorSlice> tensors(Part part) const override {
    std::vector<TensorSlice> slices = network(part).layout().slices();
    for (TensorSlice& s : slices) s.name = (part == Part::kPolicy ? "policy." : "critic.") + s.name;
    const std::size_t extra = part == Part::kPolicy ? spec_.distribution.extra_parameters() : 0;
    if (extra > 0) slices.push_back({"policy.log_std", count(part), {static_cast<std::int64_t>(extra)}});
    return slices;
  }

  void initialise(Part part, std::span<float> parameters, RandomStream& random) const override {
    network(part).layout().initialise(parameters.first(count(part)), random, spec_.options.init,
                                      part == Part::kPolicy ? kPolicyGain : kCriticGain);
    std::ranges::fill(parameters.subspan(count(part)), static_cast<float>(spec_.options.init_log_std));
  }

  void constrain(std::span<float> policy) const override {
    for (float& v : policy.subspan(count(Part::kPolicy))) {
      v = std::clamp(v, static_cast<float>(kMinLogStd), static_cast<float>(kMaxLogStd));
    }
  }

  void see(const PolicyParameters<float>& parameters, const PolicyInput& input) override {
    GIPO_CHECK(input.columns.size() == spec_.fields.size() && input.rows <= room_.rows);
    stay_on_this_thread();
    bind(parameters);
    rows_ = input.rows;
    mask_ = spec_.distribution.masked ? reinterpret_cast<const std::uint8_t*>(input.columns[mask_field_]) : nullptr;
    const torch::NoGradGuard none;
    sequences_.assign(input.sequences.begin(), input.sequences.end());
    see_state(input.state);
    std::size_t all = rows_;
    for (const Sequence& s : sequences_) all = std::max(all, s.context_begin + s.context);
    const auto rows = static_cast<std::int64_t>(all), width = static_cast<std::int64_t>(spec_.observation_size);
    if (width > 0) {
      encoded_.resize(std::max(all, room_.rows) * spec_.observation_size);
      scaled_.resize(encoded_.size());
      encode(spec_.fields, input.columns, all, encoded_.data());
      parameters.scale->apply<float>({encoded_.data(), all * spec_.observation_size}, scaled_.data());
      place(floats_, torch::from_blob(scaled_.data(), {rows, width}));
    }
    raw_.resize(spec_.fields.size());
    for (std::size_t f = 0; f < spec_.fields.size(); ++f) {
      if (!spec_.fields[f].raw) continue;
      const Tensor seen = rows_of(spec_.fields[f], input.columns[f], rows);
      if (device_.is_cpu()) {
        raw_[f] = as_input(spec_.fields[f], spec_.encoders[f], seen);
      } else {
        place(raw_[f], seen);
      }
    }
    see_shared();
  }

  void see_as(const PolicyParameters<float>& parameters, const Policy<float>& other) override {
    const auto& twin = static_cast<const TorchPolicy&>(other);
    bind(parameters);
    rows_ = std::min(twin.rows_, room_.rows);
    mask_ = twin.mask_;
    floats_ = twin.floats_;
    raw_ = twin.raw_;
    sequences_ = twin.sequences_;
    state_ = twin.state_;
    see_shared();
  }

  void forward(std::size_t rows) override {
    GIPO_CHECK(rows <= rows_);
    stay_on_this_thread();
    const torch::AutoGradMode gradients(learns());
    const Autocast autocast(room_.bf16);
    evaluated_ = rows;
    if (records_) {
      outputs_ = replayed(Part::kPolicy, policy_record_, rows);
    } else if (shared_ > 0) {
      TorchNetworks b = *trunk_backend_;
      outputs_ = policy_.run(b, {{first_rows(trunk_, rows)}, {}}, shared_, policy_.layers());
    } else {
      TorchMemory memory = memory_of(Part::kPolicy, rows);
      TorchNetworks b(policy_.tensors(), &memory);
      outputs_ = policy_.run(b, input(Part::kPolicy, 0, rows), 0, policy_.layers());
      after_ = memory.after;
    }
    outputs_ = outputs_.to(torch::kFloat32).contiguous();
    host_outputs_ = outputs_.detach().to(torch::kCPU);
    view_ = {host_outputs_.const_data_ptr<float>(), extra()};
    if (learns()) pi_.evaluate(view_, rows, mask_);
  }

  void choose(std::span<const ActionRow> rows) override {
    GIPO_CHECK(rows.size() == evaluated_);
    choose_actions(spec_.distribution, view_, rows, mask_);
  }

  void next_state(float* out) override {
    if (!spec_.has_memory()) return;
    GIPO_CHECK(sequences_.empty());
    const torch::NoGradGuard none;
    Tensor next = after_;
    if (critic_.remembers()) {
      TorchMemory memory = memory_of(Part::kCritic, rows_);
      TorchNetworks b(critic_.tensors(), &memory);
      next = torch::cat({after_, critic_.run(b, input(Part::kCritic, 0, rows_), 0, 0)}, 1);
    }
    copy_to(next, {out, static_cast<std::size_t>(next.numel())});
  }

  DistributionView<float> distribution() const override { return view_; }
  void log_prob(const float* actions, float* out) const override { pi_.log_prob(actions, out); }
  void entropy(float* out) const override { pi_.entropy(out); }
  void kl_divergence(const Policy<float>& other, float* out) const override {
    pi_.kl_divergence(static_cast<const TorchPolicy&>(other).pi_, out);
  }

  void policy_gradient(const float* actions, const PolicyLoss<float>& loss, std::span<float> gradient) override {
    d_outputs_.resize(room_.learned * static_cast<std::size_t>(policy_.outputs()));
    DistributionLoss<float> of_outputs{loss.d_log_prob, loss.entropy_coef, loss.kl_coef, nullptr};
    if (loss.other) of_outputs.other = &static_cast<const TorchPolicy*>(loss.other)->pi_;
    pi_.gradient(actions, of_outputs, d_outputs_.data(), gradient.subspan(count(Part::kPolicy)));
    if (records_) return replay_backward(policy_, policy_record_, d_outputs_.data(), evaluated_, gradient);
    backward(policy_, outputs_, d_outputs_.data(), gradient);
  }

  const float* values() override {
    stay_on_this_thread();
    const torch::AutoGradMode gradients(learns());
    const Autocast autocast(room_.bf16);
    if (records_) {
      values_ = replayed(Part::kCritic, critic_records_[padded(rows_)], padded(rows_));
    } else {
      TorchMemory memory = memory_of(Part::kCritic, rows_);
      TorchNetworks b(critic_.tensors(), &memory);
      values_ = critic_.run(b, input(Part::kCritic, 0, rows_), 0, critic_.layers()).to(torch::kFloat32).contiguous();
    }
    host_values_ = values_.detach().to(torch::kCPU);
    return host_values_.const_data_ptr<float>();
  }

  void value_gradient(const float* d_values, std::size_t rows, std::span<float> gradient) override {
    if (records_) return replay_backward(critic_, critic_records_.at(padded(rows_)), d_values, rows, gradient);
    backward(critic_, first_rows(values_, rows), d_values, gradient);
  }

  void add_to(OnnxGraph& graph, std::span<const float> policy, const OnnxObservation& x,
              const std::string& output) const override {
    NetworkInput<std::string> in{{}, x.raw};
    if (!x.floats.empty()) in.floats.push_back(x.floats);
    OnnxNetworks b(graph, policy_.layout().slices(), policy, x.state);
    graph.node("Identity", {policy_.run(b, in, 0, policy_.layers())}, {}, {output});
  }

 private:
  bool learns() const { return room_.learned > 0; }
  const TorchNetwork& network(Part part) const { return part == Part::kPolicy ? policy_ : critic_; }
  std::size_t count(Part part) const { return network(part).layout().parameter_count(); }
  std::span<const float> extra() const { return parameters_.policy.subspan(count(Part::kPolicy)); }

  void bind(const PolicyParameters<float>& parameters) {
    parameters_ = parameters;
    policy_.bind(parameters.policy, parameters.policy_version, learns(), device_);
    if (room_.critic) critic_.bind(parameters.critic, parameters.critic_version, learns(), device_);
  }

  // A tensor of this device with these rows at its beginning. It stays where it is while it has room.
  void place(Tensor& to, const Tensor& rows) {
    if (device_.is_cpu()) {
      to = rows;
      return;
    }
    std::vector<std::int64_t> shape = rows.sizes().vec();
    shape[0] = std::max<std::int64_t>(shape[0], static_cast<std::int64_t>(room_.rows));
    if (!to.defined() || to.size(0) < shape[0]) to = torch::zeros(shape, rows.options().device(device_));
    to.narrow(0, 0, rows.size(0)).copy_(rows, true);
  }

  // Graphs are of few shapes: the rows of a critic, which differ from batch to batch, are rounded up.
  std::size_t padded(std::size_t rows) const { return std::min((rows + 31) / 32 * 32, room_.rows); }

  // The output of one network for the first rows, by a graph that is recorded at the first time.
  Tensor replayed(Part part, RecordedNetwork& made, std::size_t rows) {
    if (!made.forward || made.output.size(0) != static_cast<std::int64_t>(rows)) {
      made = {};
      made.forward = record_graph([&] {
        TorchNetworks b(network(part).tensors());
        const NetworkInput<Tensor> in = input(part, 0, rows);
        made.output = network(part).run(b, in, 0, network(part).layers()).to(torch::kFloat32).contiguous();
      });
    }
    made.forward->replay();
    return made.output;
  }

  static void replay_backward(const TorchNetwork& network, RecordedNetwork& made, const float* d_output,
                              std::size_t rows, std::span<float> gradient) {
    const std::vector<Tensor> leaves(network.tensors().begin(), network.tensors().end());
    if (!made.d_output.defined()) made.d_output = torch::zeros_like(made.output);
    const auto count = static_cast<std::int64_t>(rows);
    made.d_output.narrow(0, 0, count)
        .copy_(torch::from_blob(const_cast<float*>(d_output), {count, made.output.size(1)}), true);
    if (!made.backward) {
      made.backward = record_graph(
          [&] { made.gradient = joined(torch::autograd::grad({made.output}, leaves, {made.d_output}, true)); });
    }
    made.backward->replay();
    if (!made.host.defined()) made.host = torch::empty_like(made.gradient, torch::kCPU).pin_memory();
    made.host.copy_(made.gradient);
    copy_to(made.host, gradient);
  }

  // The output of the layers that both read. The policy's layers after these begin where this ended.
  void see_shared() {
    if (shared_ == 0) return;
    const torch::AutoGradMode gradients(learns());
    const Autocast autocast(room_.bf16);
    TorchMemory memory = memory_of(Part::kPolicy, rows_);
    trunk_backend_.emplace(policy_.tensors(), &memory);
    trunk_ = policy_.run(*trunk_backend_, input(Part::kPolicy, 0, rows_), 0, shared_);
    after_ = memory.after;
  }

  // Of rows [begin, begin + rows).
  NetworkInput<Tensor> input(Part part, std::size_t begin, std::size_t rows) const {
    NetworkInput<Tensor> in;
    const auto width = static_cast<std::int64_t>(network(part).floats_read());
    if (part == Part::kCritic && shared_ > 0) in.floats.push_back(some_rows(trunk_, begin, rows).detach());
    const std::int64_t first = part == Part::kCritic ? static_cast<std::int64_t>(spec_.observation_size) - width : 0;
    if (width > 0) in.floats.push_back(some_rows(floats_, begin, rows).narrow(1, first, width));
    for (std::size_t f = 0; f < raw_.size(); ++f) {
      Tensor x = some_rows(raw_[f], begin, rows);
      if (x.defined() && !device_.is_cpu()) x = as_input(spec_.fields[f], spec_.encoders[f], x);
      in.raw.push_back(std::move(x));
    }
    return in;
  }

  // Null: that of before an episode.
  void see_state(const float* state) {
    if (!spec_.has_memory()) return;
    const std::size_t count = sequences_.empty() ? rows_ : sequences_.size();
    state_ = torch::zeros({static_cast<std::int64_t>(count), static_cast<std::int64_t>(spec_.state_size())});
    if (state) std::copy_n(state, state_.numel(), state_.data_ptr<float>());
    state_ = state_.to(device_);
  }

  // What a part's recurrent layer is told of the first `rows` rows.
  TorchMemory memory_of(Part part, std::size_t rows) const {
    if (!network(part).remembers()) return {};
    TorchMemory memory{before_sequences(part)};
    if (sequences_.empty()) return memory;
    std::vector<std::vector<std::int64_t>> all(sequences_.size());
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      const Sequence& s = sequences_[i];
      for (std::size_t r = s.begin; r < s.begin + s.length; ++r) all[i].push_back(static_cast<std::int64_t>(r));
      if (s.after < rows) all[i].push_back(static_cast<std::int64_t>(s.after));
    }
    memory.packed = pack(all, device_);
    return memory;
  }

  // The state after the contexts. No gradient goes back beyond it.
  Tensor before_sequences(Part part) const {
    const torch::NoGradGuard none;
    const std::int64_t size = spec_.options.memory_size;
    TorchMemory memory{state_.narrow(1, part == Part::kPolicy ? 0 : size, size)};
    std::size_t begin = Sequence::kNone, end = 0;
    for (const Sequence& s : sequences_) {
      if (s.context == 0) continue;
      begin = std::min(begin, s.context_begin);
      end = std::max(end, s.context_begin + s.context);
    }
    if (end == 0) return memory.state;
    std::vector<std::vector<std::int64_t>> all(sequences_.size());
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      const Sequence& s = sequences_[i];
      for (std::size_t r = 0; r < s.context; ++r)
        all[i].push_back(static_cast<std::int64_t>(s.context_begin - begin + r));
    }
    memory.packed = pack(all, device_);
    TorchNetworks b(network(part).tensors(), &memory);
    network(part).run(b, input(part, begin, end - begin), 0, 0);
    return memory.after;
  }

  static void backward(const TorchNetwork& network, const Tensor& output, const float* d_output,
                       std::span<float> gradient) {
    stay_on_this_thread();
    const Tensor d = torch::from_blob(const_cast<float*>(d_output), output.sizes()).to(output.device());
    const std::vector<Tensor> leaves(network.tensors().begin(), network.tensors().end());
    if (!output.is_cpu()) return copy_to(joined(torch::autograd::grad({output}, leaves, {d})), gradient);
    copy_gradients(network.layout(), torch::autograd::grad({output}, leaves, {d}), gradient);
  }

  ModelSpec spec_;
  PolicyRoom room_;
  TorchNetwork policy_, critic_;
  std::size_t shared_;
  EvaluatedDistribution<float> pi_;
  std::size_t mask_field_;
  torch::Device device_;
  bool records_;  // whether work is recorded in graphs: a learner's on a device, where nothing but the rows has a shape

  // Of the last calls.
  PolicyParameters<float> parameters_;
  std::size_t rows_ = 0, evaluated_ = 0;
  const std::uint8_t* mask_ = nullptr;
  std::vector<float> encoded_, scaled_;         // [rows, observation_size]
  Tensor floats_;                               // the same
  std::vector<Tensor> raw_;                     // [fields] of [rows, ...]
  std::optional<TorchNetworks> trunk_backend_;  // where the layers that both read have ended
  std::vector<Sequence> sequences_;             // with memory; none: each row is one
  Tensor state_, after_;  // [sequences, state_size] before; [rows, memory_size] the policy's after
  Tensor trunk_, outputs_, values_;
  Tensor host_outputs_, host_values_;  // the last two, here
  RecordedNetwork policy_record_;
  std::map<std::size_t, RecordedNetwork> critic_records_;  // by rows
  DistributionView<float> view_;
  AlignedVector<float> d_outputs_;  // [learned, outputs]
};

}  // namespace

std::unique_ptr<Policy<float>> make_torch_policy(const ModelSpec& spec, const PolicyRoom& room) {
  return std::make_unique<TorchPolicy>(spec, room);
}

// Inputs, what layers keep for the gradient and that gradient itself.
PolicyMemory torch_policy_memory(const ModelSpec& spec, const PolicyRoom& room) {
  double inputs = 2 * static_cast<double>(spec.observation_size);
  for (const Field& f : spec.fields) inputs += f.raw ? 2 * static_cast<double>(f.values()) : 0;
  const auto rows = static_cast<double>(room.rows), kept = room.learned > 0 ? 2.0 : 1.0;
  const TorchNetwork policy(spec, Part::kPolicy), critic(spec, Part::kCritic);
  const double parameters = static_cast<double>(policy.layout().parameter_count() + critic.layout().parameter_count());
  PolicyMemory memory;
  memory.held =
      4 * rows *
      (inputs + kept * (policy.layout().floats_of_a_row() + (room.critic ? critic.layout().floats_of_a_row() : 0)));
  if (room.learned > 0) memory.held += 4 * parameters;
  memory.at_first = 8 * 4 * parameters;  // an orthogonal matrix is made in double precision from three more of its size
  return memory;
}

std::vector<std::string> torch_cuda_devices() { return graph_devices(); }

void check_torch_device(const std::string& device) {
  const std::vector<std::string> there = graph_devices();
  std::size_t wanted = 0;
  if (device.starts_with("cuda:")) {
    const char* const end = device.data() + device.size();
    const auto [at, fault] = std::from_chars(device.data() + 5, end, wanted);
    if (fault != std::errc() || at != end) wanted = there.size();
  }
  const bool known = device == "cpu" || device == "cuda" || device.starts_with("cuda:");
  if (device == "cpu" || (known && wanted < there.size())) return;
  std::vector<std::string> accepted = {"cpu"};
  for (std::size_t i = 0; i < there.size(); ++i) accepted.push_back(fmt::format("cuda:{} ({})", i, there[i]));
  throw Error(fmt::format(
      "learner.device = \"{}\" is not there: this program has {}{}", device, fmt::join(accepted, ", "),
      there.empty() ? "; a build with -DGIPO_TORCH_CUDA=ON, on a machine with a CUDA device, has more" : ""));
}

std::string torch_version() { return TORCH_VERSION; }

}  // namespace gipo
