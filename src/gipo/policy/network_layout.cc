#include "gipo/policy/network_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/policy/mlp.h"
#include "gipo/policy/networks.h"

namespace gipo {
namespace {

constexpr double kVectorDeviation = 0.1;  // of embeddings
constexpr std::size_t kGates = 3;         // of a recurrent layer
constexpr float kFirstKeep = 2;           // of a gate: GTrXL's

std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

void NetworkLayout::add_slice(const std::string& name, Value shape, First first) {
  slices_.push_back({part_ + name, count_, std::move(shape)});
  first_.push_back(first);
  count_ += slices_.back().values();
}

NetworkLayout::Value NetworkLayout::made(Value shape) {
  floats_ += static_cast<double>(product(shape));
  return shape;
}

NetworkLayout::Value NetworkLayout::conv(const std::string& name, const Value& x, const Conv& c) {
  GIPO_CHECK(x.size() == 3);
  const auto side = [&](std::int64_t n) { return (n + 2 * c.padding - c.kernel) / c.stride + 1; };
  if (x[1] + 2 * c.padding < c.kernel || x[2] + 2 * c.padding < c.kernel) {
    throw Error(fmt::format("a layer of {} x {} has no room on {} x {} values", c.kernel, c.kernel, x[1], x[2]));
  }
  add_slice(name + ".weight", {c.out, x[0], c.kernel, c.kernel}, First::kMatrix);
  add_slice(name + ".bias", {c.out}, First::kBias);
  return made({c.out, side(x[1]), side(x[2])});
}

NetworkLayout::Value NetworkLayout::linear(const std::string& name, Value x, std::int64_t out) {
  add_slice(name + ".weight", {out, x.back()}, First::kMatrix);
  add_slice(name + ".bias", {out}, First::kBias);
  x.back() = out;
  return made(std::move(x));
}

NetworkLayout::Value NetworkLayout::norm(const std::string& name, Value x) {
  add_slice(name + ".weight", {x.back()}, First::kOne);
  add_slice(name + ".bias", {x.back()}, First::kZero);
  return made(std::move(x));
}

NetworkLayout::Value NetworkLayout::lookup(const std::string& name, const Value& x,
                                           const std::vector<std::int64_t>& choices) {
  add_slice(name, {std::accumulate(choices.begin(), choices.end(), std::int64_t{0}), kEmbeddingWidth}, First::kVector);
  return made({product(x), kEmbeddingWidth});
}

NetworkLayout::Value NetworkLayout::parameter(const std::string& name, const Value& shape) {
  add_slice(name, shape, First::kVector);
  return shape;
}

NetworkLayout::Value NetworkLayout::activate(Value x, Activation) { return made(std::move(x)); }

NetworkLayout::Value NetworkLayout::pool(const Value& x) { return made({x[0], (x[1] + 1) / 2, (x[2] + 1) / 2}); }

NetworkLayout::Value NetworkLayout::add(Value x, const Value& y) {
  GIPO_CHECK(x == y);
  return made(std::move(x));
}

NetworkLayout::Value NetworkLayout::attention(const Value& q, const Value&, const Value&) {
  floats_ += static_cast<double>(kVitHeads * q[0] * q[0]);
  return made(q);
}

// As torch.nn.GRU has it: the gates for reset and update, then what is new.
NetworkLayout::Value NetworkLayout::gru(const std::string& name, const Value& x, std::int64_t size) {
  add_slice(name + ".weight_ih", {3 * size, x[0]}, First::kGates);
  add_slice(name + ".weight_hh", {3 * size, size}, First::kGates);
  add_slice(name + ".bias_ih", {3 * size}, First::kBias);
  add_slice(name + ".bias_hh", {3 * size}, First::kBias);
  floats_ += static_cast<double>(6 * size);
  return made({size});
}

NetworkLayout::Value NetworkLayout::window(const Value&, std::int64_t, const Window& w) {
  return made({w.steps, w.size});
}

NetworkLayout::Value NetworkLayout::recall(const Value& q, const Value& k, const Value&) {
  floats_ += static_cast<double>(2 * kRecallHeads * k[0]);
  return made(q);
}

// A recurrent layer's step, with x as the state. At first it keeps most of x.
NetworkLayout::Value NetworkLayout::gate(const std::string& name, const Value& x, const Value& y) {
  const std::int64_t size = x[0];
  add_slice(name + ".weight_ih", {3 * size, y[0]}, First::kGates);
  add_slice(name + ".weight_hh", {3 * size, size}, First::kGates);
  add_slice(name + ".bias_ih", {3 * size}, First::kKeep);
  add_slice(name + ".bias_hh", {3 * size}, First::kBias);
  floats_ += static_cast<double>(6 * size);
  return made(x);
}

NetworkLayout::Value NetworkLayout::tokens(const Value& x) { return {x[1] * x[2], x[0]}; }
NetworkLayout::Value NetworkLayout::mean_of_tokens(const Value& x) { return made({x[1]}); }
NetworkLayout::Value NetworkLayout::flat(const Value& x) { return {product(x)}; }

NetworkLayout::Value NetworkLayout::join(const std::vector<Value>& all) {
  std::int64_t sum = 0;
  for (const Value& x : all) sum += x[0];
  return made({sum});
}

void NetworkLayout::initialise(std::span<float> parameters, RandomStream& random, FirstWeights how,
                               double output_gain) const {
  GIPO_CHECK(parameters.size() == count_);
  std::size_t last = 0;
  for (std::size_t i = 0; i < slices_.size(); ++i) last = first_[i] == First::kMatrix ? i : last;
  double within = 0;  // of the matrix that a bias belongs to
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const std::span<float> values = parameters.subspan(slices_[i].offset, slices_[i].values());
    const auto fill = [&](auto&& draw) { std::ranges::generate(values, [&] { return static_cast<float>(draw()); }); };
    const auto rows = static_cast<std::size_t>(slices_[i].shape[0]);
    const bool matrix = first_[i] == First::kMatrix, gates = first_[i] == First::kGates;
    const std::size_t inputs = values.size() / rows;
    if (matrix || gates) within = 1.0 / std::sqrt(static_cast<double>(gates ? rows / kGates : inputs));
    if (matrix && how == FirstWeights::kOrthogonal) {
      fill_orthogonal(values, rows, i == last ? output_gain : std::sqrt(2.0), random);
    } else if (gates && how == FirstWeights::kOrthogonal) {
      const std::size_t gate = values.size() / kGates;
      for (std::size_t g = 0; g < kGates; ++g)
        fill_orthogonal(values.subspan(g * gate, gate), rows / kGates, 1, random);
    } else if (matrix || gates || (first_[i] == First::kBias && how == FirstWeights::kUniform)) {
      fill([&] { return within * (2.0 * random.uniform() - 1.0); });
    } else if (first_[i] == First::kVector) {
      fill([&] { return random.normal() * kVectorDeviation; });
    } else if (first_[i] == First::kKeep) {
      std::ranges::fill(values, 0.0f);
      std::ranges::fill(values.subspan(rows / kGates, rows / kGates), kFirstKeep);
    } else {
      std::ranges::fill(values, first_[i] == First::kOne ? 1.0f : 0.0f);
    }
  }
}

NetworkLayout::Value input_of(Encoder encoder, const Field& field) {
  if (encoder == Encoder::kEmbedding) return {static_cast<std::int64_t>(field.choices.size())};
  const ImageShape image = image_shape(field);
  return {image.channels, image.height, image.width};
}

NetworkLayout::Value encoder_layout(Encoder encoder, const Field& field) {
  try {
    NetworkLayout layout;
    return encoder_network(layout, encoder, input_of(encoder, field), field);
  } catch (const Error& e) {
    throw Error(fmt::format("policy.encoder: {} does not fit the field {} of shape ({}): {}", word_of(encoder),
                            field.name, fmt::join(field.shape, ", "), e.what()));
  }
}

}  // namespace gipo
