#include "gipo/policy/onnx_networks.h"

#include <cmath>

#include "gipo/core/error.h"

namespace gipo {

std::string OnnxNetworks::next() {
  GIPO_CHECK(used_ < slices_.size());
  const TensorSlice& s = slices_[used_++];
  return graph_.constant<float>("policy." + s.name, s.shape, parameters_.subspan(s.offset, s.values()));
}

std::string OnnxNetworks::reshaped(const Value& x, std::initializer_list<std::int64_t> shape) {
  const std::vector<std::int64_t> dims(shape);
  const std::string to =
      graph_.constant<std::int64_t>(fmt::format("shape.{}", shapes_++), {static_cast<std::int64_t>(dims.size())}, dims);
  return graph_.node("Reshape", {x, to});
}

std::string OnnxNetworks::turned(const Value& x, std::initializer_list<std::int64_t> order) {
  return graph_.node("Transpose", {x}, {onnx_wholes("perm", order)});
}

std::string OnnxNetworks::conv(const std::string&, const Value& x, const Conv& c) {
  const std::string weight = next(), bias = next();
  return graph_.node("Conv", {x, weight, bias},
                     {onnx_wholes("kernel_shape", {c.kernel, c.kernel}), onnx_wholes("strides", {c.stride, c.stride}),
                      onnx_wholes("pads", {c.padding, c.padding, c.padding, c.padding})});
}

// Of rows of any shape, the last dimension being the layer's.
std::string OnnxNetworks::linear(const std::string&, const Value& x, std::int64_t) {
  const std::string weight = next(), bias = next();
  return graph_.node("Add", {graph_.node("MatMul", {x, turned(weight, {1, 0})}), bias});
}

std::string OnnxNetworks::norm(const std::string&, const Value& x) {
  const std::string weight = next(), bias = next();
  return graph_.node("LayerNormalization", {x, weight, bias},
                     {onnx_whole("axis", -1), onnx_real("epsilon", kNormEpsilon)});
}

std::string OnnxNetworks::lookup(const std::string&, const Value& x, const std::vector<std::int64_t>& choices) {
  std::vector<std::int64_t> first(choices.size());
  for (std::size_t c = 1; c < choices.size(); ++c) first[c] = first[c - 1] + choices[c - 1];
  const std::string table = next();
  const std::string from = graph_.constant<std::int64_t>(fmt::format("first.{}", shapes_++),
                                                         {static_cast<std::int64_t>(first.size())}, first);
  return graph_.node("Gather", {table, graph_.node("Add", {x, from})}, {onnx_whole("axis", 0)});
}

std::string OnnxNetworks::parameter(const std::string&, const std::vector<std::int64_t>&) { return next(); }

std::string OnnxNetworks::activate(const Value& x, Activation activation) {
  return graph_.node(activation == Activation::kTanh ? "Tanh" : "Relu", {x});
}

std::string OnnxNetworks::pool(const Value& x) {
  return graph_.node(
      "MaxPool", {x},
      {onnx_wholes("kernel_shape", {3, 3}), onnx_wholes("strides", {2, 2}), onnx_wholes("pads", {1, 1, 1, 1})});
}

std::string OnnxNetworks::attention(const Value& q, const Value& k, const Value& v) {
  constexpr std::int64_t kWidth = kVitWidth / kVitHeads;
  const auto heads = [&](const Value& x, std::initializer_list<std::int64_t> order) {
    return turned(reshaped(x, {0, 0, kVitHeads, kWidth}), order);
  };
  const std::string scale = graph_.constant<float>(fmt::format("scale.{}", shapes_++), {1},
                                                   std::vector<float>{1 / std::sqrt(static_cast<float>(kWidth))});
  std::string weights = graph_.node("MatMul", {heads(q, {0, 2, 1, 3}), heads(k, {0, 2, 3, 1})});
  weights = graph_.node("Softmax", {graph_.node("Mul", {weights, scale})}, {onnx_whole("axis", -1)});
  return reshaped(turned(graph_.node("MatMul", {weights, heads(v, {0, 2, 1, 3})}), {0, 2, 1, 3}), {0, 0, kVitWidth});
}

std::string OnnxNetworks::gru(const std::string& name, const Value& x, std::int64_t) {
  return cell(name, x, state_, "next_state");
}

// One step, as torch.nn.GRUCell defines it.
std::string OnnxNetworks::cell(const std::string& name, const Value& x, const Value& state, const std::string& output) {
  GIPO_CHECK(used_ < slices_.size());
  const std::vector<std::int64_t> sizes(3, slices_[used_].shape[0] / 3);
  const std::string weight_ih = next(), weight_hh = next(), bias_ih = next(), bias_hh = next();
  const std::string split = graph_.constant<std::int64_t>(name + ".gates", {3}, sizes);
  const auto gates = [&](const std::string& from, const std::string& weight, const std::string& bias,
                         const std::string& part) {
    std::vector<std::string> outputs = {name + part + ".reset", name + part + ".update", name + part + ".new"};
    const std::string all = graph_.node("Add", {graph_.node("MatMul", {from, turned(weight, {1, 0})}), bias});
    graph_.node("Split", {all, split}, {onnx_whole("axis", 1)}, outputs);
    return outputs;
  };
  const std::vector<std::string> seen = gates(x, weight_ih, bias_ih, ".seen");
  const std::vector<std::string> kept = gates(state, weight_hh, bias_hh, ".kept");
  const std::string reset = graph_.node("Sigmoid", {graph_.node("Add", {seen[0], kept[0]})});
  const std::string update = graph_.node("Sigmoid", {graph_.node("Add", {seen[1], kept[1]})});
  const std::string fresh = graph_.node("Tanh", {graph_.node("Add", {seen[2], graph_.node("Mul", {reset, kept[2]})})});
  const std::string change = graph_.node("Mul", {update, graph_.node("Sub", {state, fresh})});
  return graph_.node("Add", {fresh, change}, {}, {output});
}

std::string OnnxNetworks::number(const std::vector<float>& values) {
  return graph_.constant<float>(fmt::format("number.{}", shapes_++), {1, static_cast<std::int64_t>(values.size())},
                                values);
}

// Columns [begin, end) of the second dimension.
std::string OnnxNetworks::sliced(const Value& x, std::int64_t begin, std::int64_t end) {
  const auto whole = [&](std::int64_t value) {
    return graph_.constant<std::int64_t>(fmt::format("shape.{}", shapes_++), {1}, std::vector<std::int64_t>{value});
  };
  return graph_.node("Slice", {x, whole(begin), whole(end), whole(1)});
}

// The state holds the windows of all blocks, and then how many steps are in them.
std::string OnnxNetworks::window(const Value& x, std::int64_t block, const Window& w) {
  const std::int64_t held = w.steps - 1, of_block = held * w.size, all_blocks = kMemoryBlocks * of_block;
  window_ = w;
  const std::string before = reshaped(sliced(state_, block * of_block, (block + 1) * of_block), {0, held, w.size});
  std::string all = graph_.node("Concat", {before, reshaped(x, {0, 1, w.size})}, {onnx_whole("axis", 1)});
  const std::string steps = sliced(state_, all_blocks, all_blocks + 1);
  if (block == 0) {
    std::vector<float> back;
    for (std::int64_t j = 0; j < w.steps; ++j) back.push_back(static_cast<float>(held - j));
    const std::string hidden =
        graph_.node("Cast", {graph_.node("Greater", {number(back), steps})}, {onnx_whole("to", 1)});
    hidden_ = reshaped(graph_.node("Mul", {hidden, number({-1e9f})}), {0, 1, 1, w.steps});
  }
  after_.push_back(reshaped(sliced(all, 1, w.steps), {0, of_block}));
  if (block + 1 == kMemoryBlocks) {
    const std::string more = graph_.node("Add", {steps, number({1})});
    after_.push_back(graph_.node("Min", {more, number({static_cast<float>(held)})}));
    graph_.node("Concat", after_, {onnx_whole("axis", 1)}, {"next_state"});
  }
  return all;
}

std::string OnnxNetworks::newest(const Value& x) {
  return reshaped(sliced(x, window_.steps - 1, window_.steps), {0, window_.size});
}

std::string OnnxNetworks::recall(const Value& q, const Value& k, const Value& v) {
  const std::int64_t width = window_.size / kRecallHeads;
  const auto heads = [&](const Value& x, std::initializer_list<std::int64_t> order) {
    return turned(reshaped(x, {0, 0, kRecallHeads, width}), order);
  };
  const std::string from = graph_.node(
      "Mul", {reshaped(q, {0, kRecallHeads, 1, width}), number({1 / std::sqrt(static_cast<float>(width))})});
  const std::string scores = graph_.node("Add", {graph_.node("MatMul", {from, heads(k, {0, 2, 3, 1})}), hidden_});
  const std::string weights = graph_.node("Softmax", {scores}, {onnx_whole("axis", -1)});
  return reshaped(graph_.node("MatMul", {weights, heads(v, {0, 2, 1, 3})}), {0, window_.size});
}

std::string OnnxNetworks::tokens(const Value& x) { return turned(reshaped(x, {0, kVitWidth, -1}), {0, 2, 1}); }

std::string OnnxNetworks::mean_of_tokens(const Value& x) {
  return graph_.node("ReduceMean", {x}, {onnx_wholes("axes", {1}), onnx_whole("keepdims", 0)});
}

std::string OnnxNetworks::join(const std::vector<Value>& all) {
  return all.size() == 1 ? all[0] : graph_.node("Concat", all, {onnx_whole("axis", 1)});
}

}  // namespace gipo
