#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "gipo/core/error.h"
#include "gipo/policy/encoder.h"
#include "gipo/policy/model.h"

namespace gipo {

// The networks that libtorch runs, each written once, over a backend B that says what a layer is: one that lists their
// parameters (network_layout.h), one that computes (torch/), one that writes an ONNX graph (network_onnx.h). B has
//
//   Value                                      a batch on its way; B alone knows what that is
//   conv(name, x, {out, kernel, stride, padding}), linear(name, x, out), norm(name, x), lookup(name, x, choices)
//   parameter(name, shape), activate(x, activation), pool(x), add(x, y), attention(q, k, v), tokens(x), mean_of_tokens(x)
//   flat(x), join(all)
//   gru(name, x, size)                         the state after each row; B knows which rows follow each other
//   window(x, block, {steps, size})            of each row, the last so many with itself at the end; those before the
//                                              first are there and not to be looked at
//   newest(x), recall(q, k, v)                 of such rows the last; what q finds in them
//   gate(name, x, y)                           x as y changes it: a recurrent layer's step
//   enter(part)                                what the names of the layers that follow begin with
struct Conv {
  std::int64_t out = 1, kernel = 1, stride = 1, padding = 0;
};

inline constexpr std::int64_t kEmbeddingWidth = 32, kVitWidth = 64, kVitHeads = 4, kVitBlocks = 2, kVitPatches = 8;
inline constexpr std::int64_t kRecallHeads = 4;

// Of images: what convolutions make of them, flat, for the hidden layers that follow. Of choices: a vector for each.
template <class B>
typename B::Value encoder_network(B& b, Encoder encoder, typename B::Value x, const Field& field) {
  using Value = typename B::Value;
  const auto relu = [&](Value v) { return b.activate(std::move(v), Activation::kRelu); };
  switch (encoder) {
    case Encoder::kFloats:
      break;
    case Encoder::kSmall:  // of MinAtar's baselines
      return b.flat(relu(b.conv("conv0", x, {16, 3, 1, 0})));
    case Encoder::kNature:
      x = relu(b.conv("conv0", x, {32, 8, 4, 0}));
      x = relu(b.conv("conv1", x, {64, 4, 2, 0}));
      return b.flat(relu(b.conv("conv2", x, {64, 3, 1, 0})));
    case Encoder::kImpala:
      for (const std::int64_t stage : {0, 1, 2}) {
        const std::int64_t channels = stage == 0 ? 16 : 32;
        x = b.pool(b.conv(fmt::format("{}.conv", stage), x, {channels, 3, 1, 1}));
        for (const int block : {0, 1}) {
          Value y = b.conv(fmt::format("{}.{}.conv0", stage, block), relu(x), {channels, 3, 1, 1});
          y = b.conv(fmt::format("{}.{}.conv1", stage, block), relu(y), {channels, 3, 1, 1});
          x = b.add(x, y);
        }
      }
      return b.flat(relu(x));
    case Encoder::kVit: {
      const ImageShape shape = image_shape(field);
      const std::int64_t patch = std::max<std::int64_t>(1, std::min(shape.height, shape.width) / kVitPatches);
      const std::int64_t tokens = (shape.height / patch) * (shape.width / patch);
      x = b.tokens(b.conv("patch", x, {kVitWidth, patch, patch, 0}));
      x = b.add(x, b.parameter("position", {tokens, kVitWidth}));
      for (std::int64_t i = 0; i < kVitBlocks; ++i) {
        const auto name = [&](const char* layer) { return fmt::format("{}.{}", i, layer); };
        Value seen = b.norm(name("norm1"), x);
        seen = b.attention(b.linear(name("query"), seen, kVitWidth), b.linear(name("key"), seen, kVitWidth),
                           b.linear(name("value"), seen, kVitWidth));
        x = b.add(x, b.linear(name("out"), seen, kVitWidth));
        seen = relu(b.linear(name("up"), b.norm(name("norm2"), x), 2 * kVitWidth));
        x = b.add(x, b.linear(name("down"), seen, kVitWidth));
      }
      return b.mean_of_tokens(b.norm("norm", x));
    }
    case Encoder::kEmbedding:
      return b.flat(b.lookup("table", x, field.choices));
    case Encoder::kVla:
      break;
  }
  GIPO_NOT_REACHED();
}

// What a network sees of rows of observations.
template <class Value>
struct NetworkInput {
  std::vector<Value> floats;  // one: those that were made of fields; or none
  std::vector<Value> raw;     // [fields] what encoders read
};

// The fields of these roles side by side, after their encoders.
template <class B>
typename B::Value features_network(B& b, const ModelSpec& spec, std::initializer_list<Role> roles,
                                   const NetworkInput<typename B::Value>& in) {
  std::vector<typename B::Value> all = in.floats;
  for (std::size_t f = 0; f < spec.encoders.size(); ++f) {
    const Field& field = spec.fields[f];
    if (!field.raw || std::ranges::find(roles, field.role) == roles.end()) continue;
    b.enter(field.name + ".");
    all.push_back(encoder_network(b, spec.encoders[f], in.raw[f], field));
  }
  b.enter("");
  return b.join(all);
}

struct Window {
  std::int64_t steps = 1, size = 1;
};

// Blocks as in GTrXL (Parisotto et al., 2020): norms before, gates in place of sums. Of the last steps each block has what
// it was given then. Places are told by how long ago a step was.
template <class B>
typename B::Value transformer_network(B& b, const PolicyOptions& o, typename B::Value x) {
  using Value = typename B::Value;
  const std::int64_t size = o.memory_size;
  const auto relu = [&](Value v) { return b.activate(std::move(v), Activation::kRelu); };
  x = b.linear("memory.in", x, size);
  for (std::int64_t i = 0; i < kMemoryBlocks; ++i) {
    const auto name = [&](const char* layer) { return fmt::format("memory.{}.{}", i, layer); };
    const Value seen = b.norm(name("norm1"), b.window(x, i, {o.memory_window, size}));
    const Value places = b.parameter(name("position"), {o.memory_window, size});
    const Value keys = b.linear(name("key"), b.add(seen, places), size), values = b.linear(name("value"), seen, size);
    Value y = b.recall(b.linear(name("query"), b.newest(seen), size), keys, values);
    x = b.gate(name("gate1"), x, relu(b.linear(name("out"), y, size)));
    y = relu(b.linear(name("up"), b.norm(name("norm2"), x), 2 * size));
    x = b.gate(name("gate2"), x, relu(b.linear(name("down"), y, size)));
  }
  return x;
}

// What the features come to with what is remembered.
template <class B>
typename B::Value memory_network(B& b, const PolicyOptions& o, typename B::Value x) {
  if (o.memory == Memory::kTransformer) return transformer_network(b, o, std::move(x));
  return o.memory == Memory::kGru ? b.gru("memory", x, o.memory_size) : x;
}

// Layers [begin, end) of those with these widths and the output after them.
template <class B>
typename B::Value layers_network(B& b, const PolicyOptions& o, const Widths& hidden, std::int64_t outputs,
                                 std::size_t begin, std::size_t end, typename B::Value x) {
  for (std::size_t i = begin; i < end; ++i) {
    if (i == hidden.size()) return b.linear(fmt::format("{}", i), x, outputs);
    x = b.activate(b.linear(fmt::format("{}", i), x, hidden[i]), o.activation);
    if (o.layer_norm) x = b.norm(fmt::format("{}.norm", i), x);
  }
  return x;
}

}  // namespace gipo
