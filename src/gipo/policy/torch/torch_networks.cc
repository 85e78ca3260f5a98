#include "gipo/policy/torch/torch_networks.h"

#include "gipo/core/error.h"

namespace gipo {
namespace {

using torch::Tensor;

}  // namespace

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

Tensor TorchNetworks::attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto heads = [](const Tensor& x) {
    return x.reshape({x.size(0), x.size(1), kVitHeads, x.size(2) / kVitHeads}).transpose(1, 2);
  };
  const Tensor all = at::scaled_dot_product_attention(heads(q), heads(k), heads(v));
  return all.transpose(1, 2).reshape(q.sizes());
}

}  // namespace gipo
