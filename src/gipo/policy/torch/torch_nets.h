#pragma once

#include <torch/torch.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gipo/core/error.h"
#include "gipo/policy/network_layout.h"
#include "gipo/policy/policy.h"
#include "gipo/policy/torch/torch_networks.h"

namespace gipo {

// One of the two networks: where its parameters lie, and the parts that a forward goes through.
class TorchNetwork {
 public:
  TorchNetwork(const ModelSpec& spec, Part part);

  std::size_t layers() const { return hidden_.size() + 1; }
  const NetworkLayout& layout() const { return layout_; }
  std::int64_t outputs() const { return outputs_; }
  // The critic that reads the policy's layers has what these remember.
  bool remembers() const { return spec_.has_memory() && (part_ == Part::kPolicy || shared_ == 0); }
  // Of the floats of an observation: the policy's come first.
  std::size_t floats_read() const;

  // Parameters that lie there, of the host or of a device.
  void bind(float* parameters, bool learns, torch::Device device);
  // Those of the host. A device gets a copy of them, unless it has that version.
  void bind_copy(std::span<const float> parameters, std::int64_t version, bool learns, torch::Device device);
  std::span<const torch::Tensor> tensors() const { return tensors_; }

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

  ModelSpec spec_;
  Part part_;
  std::size_t shared_ = 0;
  Widths hidden_;
  std::int64_t outputs_ = 1;
  NetworkLayout layout_;
  std::vector<torch::Tensor> tensors_;
  torch::Tensor copy_;  // of all parameters, on a device
  std::int64_t version_ = -1;
};

// Observations as networks take them.
struct TorchRows {
  std::size_t rows = 0;
  torch::Tensor floats;             // [all, observation_size], those of contexts behind the others
  std::vector<torch::Tensor> raw;   // [fields] of [all, ...], as encoders take them
  torch::Tensor state;              // [sequences, state_size] with memory
  std::vector<Sequence> sequences;  // none: each row is one
};
// The rows of a field, where they lie; and as its encoder takes them.
torch::Tensor rows_of(const Field& field, const std::byte* column, std::int64_t rows, torch::Device device);
torch::Tensor as_input(const Field& field, Encoder encoder, torch::Tensor rows);
torch::Tensor first_rows(const torch::Tensor& x, std::size_t rows);

// The networks of a policy and its critic, and what they make of the rows that they saw last.
class TorchNets {
 public:
  TorchNets(const ModelSpec& spec, bool learns, bool bf16, torch::Device device);

  TorchNetwork& network(Part part) { return part == Part::kPolicy ? policy_ : critic_; }
  const TorchNetwork& network(Part part) const { return part == Part::kPolicy ? policy_ : critic_; }

  void see(TorchRows seen);
  const TorchRows& seen() const { return seen_; }
  torch::Tensor outputs(std::size_t rows);  // [rows, outputs]
  torch::Tensor values();                   // [rows, 1] of all rows
  torch::Tensor next_state();               // after outputs of rows that are sequences of their own: [rows, state_size]

 private:
  NetworkInput<torch::Tensor> input(Part part, std::size_t begin, std::size_t rows) const;
  void tell(TorchMemory& memory, const std::vector<std::vector<std::int64_t>>& sequences) const;
  TorchMemory memory_of(Part part, std::size_t rows) const;
  torch::Tensor before_sequences(Part part) const;

  ModelSpec spec_;
  bool learns_, bf16_;
  torch::Device device_;
  std::size_t shared_;
  TorchNetwork policy_, critic_;
  TorchRows seen_;
  std::optional<TorchNetworks> trunk_backend_;  // where the layers that both read have ended
  torch::Tensor trunk_;                         // their output
  torch::Tensor after_;                         // [rows, memory_state] the policy's state after its rows
};

// Floats that lie on the host or on a device, as a tensor.
torch::Tensor floats_at(std::span<const float> values, const torch::Device& device);

// One thread a call: which networks run side by side is the caller's business, and bytes do not depend on it. OpenMP counts
// threads for each that calls it.
void stay_on_this_thread();

// What a user reads where a device has no memory left: `said` is libtorch's own text.
std::string out_of_memory(const std::string& device, const std::string& said);
// Runs work of a device, and ends with a RunError that says so where its memory is too small.
template <class Work>
auto on_device(const torch::Device& device, Work&& work) {
  try {
    return work();
  } catch (const c10::OutOfMemoryError& e) {
    throw RunError(out_of_memory(device.str(), e.what_without_backtrace()));
  }
}

// The version of the library that the program runs with. The other throws Error where it was built with another one.
std::string torch_version_found();
void check_torch_version(std::string_view found);

}  // namespace gipo
