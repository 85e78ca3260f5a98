#include "gipo/policy/torch/torch_networks.h"

#include <algorithm>
#include <functional>

#include "gipo/core/error.h"

namespace gipo {
namespace {

using torch::Tensor;

Tensor whole_numbers(const std::vector<std::int64_t>& values) {
  return torch::tensor(values, torch::TensorOptions().dtype(torch::kInt64));
}

}  // namespace

PackedRows pack(const std::vector<std::vector<std::int64_t>>& sequences) {
  std::vector<std::int64_t> present, order, counts;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    if (!sequences[s].empty()) present.push_back(static_cast<std::int64_t>(s));
  }
  const auto rows = [&](std::int64_t s) -> const auto& { return sequences[static_cast<std::size_t>(s)]; };
  std::ranges::stable_sort(present, std::greater<>(), [&](std::int64_t s) { return rows(s).size(); });
  for (std::size_t t = 0; !present.empty() && t < rows(present[0]).size(); ++t) {
    const std::size_t before = order.size();
    for (const std::int64_t s : present) {
      if (t < rows(s).size()) order.push_back(rows(s)[t]);
    }
    counts.push_back(static_cast<std::int64_t>(order.size() - before));
  }
  const Tensor from = whole_numbers(order);
  return {from, from.argsort(), whole_numbers(counts), whole_numbers(present)};
}

const Tensor& TorchNetworks::next() {
  GIPO_CHECK(used_ < parameters_.size());
  return parameters_[used_++];
}

Tensor TorchNetworks::conv(const std::string&, const Tensor& x, const Conv& c) {
  const Tensor &weight = next(), &bias = next();
  return torch::conv2d(x, weight, bias, c.stride, c.padding);
}

Tensor TorchNetworks::linear(const std::string&, const Tensor& x, std::int64_t) {
  const Tensor &weight = next(), &bias = next();
  return torch::linear(x, weight, bias);
}

Tensor TorchNetworks::norm(const std::string&, const Tensor& x) {
  const Tensor &weight = next(), &bias = next();
  return torch::layer_norm(x, {x.size(-1)}, weight, bias, kNormEpsilon);
}

// Each choice has its own part of the table.
Tensor TorchNetworks::lookup(const std::string&, const Tensor& x, const std::vector<std::int64_t>& choices) {
  std::vector<std::int64_t> first(choices.size());
  for (std::size_t c = 1; c < choices.size(); ++c) first[c] = first[c - 1] + choices[c - 1];
  return torch::embedding(next(), x + torch::tensor(first));
}

Tensor TorchNetworks::parameter(const std::string&, const std::vector<std::int64_t>&) { return next(); }

Tensor TorchNetworks::activate(const Tensor& x, Activation activation) {
  return activation == Activation::kTanh ? torch::tanh(x) : torch::relu(x);
}

Tensor TorchNetworks::gru(const std::string&, const Tensor& x, std::int64_t) {
  const Tensor &weight_ih = next(), &weight_hh = next(), &bias_ih = next(), &bias_hh = next();
  GIPO_CHECK(memory_ != nullptr);
  if (!memory_->packed) {
    return memory_->after = torch::gru_cell(x, memory_->state, weight_ih, weight_hh, bias_ih, bias_hh);
  }
  const PackedRows& packed = *memory_->packed;
  GIPO_CHECK(packed.order.size(0) == x.size(0));
  const Tensor first = memory_->state.index_select(0, packed.sequences).unsqueeze(0);
  const auto [all, last] =
      torch::gru(x.index_select(0, packed.order), packed.counts, first, {weight_ih, weight_hh, bias_ih, bias_hh}, true,
                 1, 0.0, at::GradMode::is_enabled(), false);
  memory_->after = memory_->state.index_copy(0, packed.sequences, last[0]);
  return all.index_select(0, packed.inverse);
}

Tensor TorchNetworks::attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto heads = [](const Tensor& x) {
    return x.reshape({x.size(0), x.size(1), kVitHeads, x.size(2) / kVitHeads}).transpose(1, 2);
  };
  const Tensor all = at::scaled_dot_product_attention(heads(q), heads(k), heads(v));
  return all.transpose(1, 2).reshape(q.sizes());
}

}  // namespace gipo
