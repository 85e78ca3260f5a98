#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gipo/policy/networks.h"
#include "gipo/policy/tensor_slice.h"

namespace gipo {

// Rows of several sequences as recurrent layers take them: the first rows of all, then the second ones, and so on, longer
// sequences before shorter ones.
struct PackedRows {
  torch::Tensor order, inverse;   // [rows] int64: from here to there, and back
  torch::Tensor counts;           // [longest] sequences that are as long; on the CPU
  torch::Tensor sequences, last;  // [present] those that have rows, and where the last row of each is then
};
// sequences: the rows of each.
PackedRows pack(const std::vector<std::vector<std::int64_t>>& sequences, torch::Device device);

// Of rows of several sequences, the last `steps` up to each, itself at the end.
struct WindowedRows {
  torch::Tensor places;    // [rows * steps] int64: among the steps that states hold, sequence by sequence, then rows
  torch::Tensor back;      // [rows, steps] how many steps before its sequence a place is; 0: in it
  torch::Tensor sequence;  // [rows] int64: whose it is
  torch::Tensor sequences, last;  // [present] those that have rows, and the last row of each
  torch::Tensor lengths;          // [present, 1] and how many
};
WindowedRows windows_of(const std::vector<std::vector<std::int64_t>>& sequences, std::int64_t steps,
                        torch::Device device);

// What a layer with memory is told of its rows; neither packed nor windowed: each row is a sequence of its own.
struct TorchMemory {
  torch::Tensor state;  // [sequences, memory_state] before the first row of each
  std::optional<PackedRows> packed = {};
  std::optional<WindowedRows> windowed = {};
  torch::Tensor after = {};                 // [sequences, memory_state] what the layer ended with
  torch::Tensor hidden = {};                // [rows, steps] of windows: what was not there
  std::vector<torch::Tensor> windows = {};  // [blocks] of the state after
};

// The backend of networks.h that computes, with the parameters in the order in which the layout listed them.
class TorchNetworks {
 public:
  using Value = torch::Tensor;  // [rows, ...]

  explicit TorchNetworks(std::span<const torch::Tensor> parameters, TorchMemory* memory = nullptr)
      : parameters_(parameters), memory_(memory) {}

  void enter(const std::string&) {}
  Value conv(const std::string& name, const Value& x, const Conv& conv);
  Value linear(const std::string& name, const Value& x, std::int64_t out);
  Value norm(const std::string& name, const Value& x);
  Value lookup(const std::string& name, const Value& x, const std::vector<std::int64_t>& choices);
  Value parameter(const std::string& name, const std::vector<std::int64_t>& shape);
  Value activate(const Value& x, Activation activation);
  Value pool(const Value& x) { return torch::max_pool2d(x, 3, 2, 1); }
  Value add(const Value& x, const Value& y) { return x + y; }
  Value attention(const Value& q, const Value& k, const Value& v);
  Value tokens(const Value& x) { return x.flatten(2).transpose(1, 2); }
  Value mean_of_tokens(const Value& x) { return x.mean(1); }
  Value gru(const std::string& name, const Value& x, std::int64_t size);
  Value window(const Value& x, std::int64_t block, const Window& window);
  Value newest(const Value& x) { return x.select(1, x.size(1) - 1); }
  Value recall(const Value& q, const Value& k, const Value& v);
  Value gate(const std::string& name, const Value& x, const Value& y);
  Value flat(const Value& x) { return x.flatten(1); }
  Value join(const std::vector<Value>& all) { return all.size() == 1 ? all[0] : torch::cat(all, 1); }

 private:
  const torch::Tensor& next();

  std::span<const torch::Tensor> parameters_;
  TorchMemory* memory_;  // outlives what recurrent layers compute
  std::size_t used_ = 0;
};

}  // namespace gipo
