#include "gipo/policy/onnx_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/io/protobuf.h"

namespace gipo {
namespace {

using namespace protobuf;

// Field numbers and constants of onnx/onnx.proto3.
constexpr std::uint32_t kModelIrVersion = 1, kModelProducer = 2, kModelGraph = 7, kModelOpset = 8, kModelMetadata = 14;
constexpr std::uint32_t kOpsetVersion = 2;
constexpr std::uint32_t kEntryKey = 1, kEntryValue = 2;
constexpr std::uint32_t kGraphNode = 1, kGraphName = 2, kGraphInitializer = 5, kGraphInput = 11, kGraphOutput = 12;
constexpr std::uint32_t kNodeInput = 1, kNodeOutput = 2, kNodeName = 3, kNodeOperator = 4, kNodeAttribute = 5;
constexpr std::uint32_t kAttributeName = 1, kAttributeFloat = 2, kAttributeInt = 3, kAttributeType = 20;
constexpr std::uint32_t kTensorDims = 1, kTensorType = 2, kTensorName = 8, kTensorBytes = 9;
constexpr std::uint32_t kValueName = 1, kValueType = 2, kTypeTensor = 1, kTensorTypeElement = 1, kTensorTypeShape = 2;
constexpr std::uint32_t kShapeDim = 1, kDimValue = 1, kDimName = 2;
constexpr int kFloatAttribute = 1, kIntAttribute = 2;
constexpr int kIrVersion = 8, kOpset = 17;  // LayerNormalization came with 17

enum class Element { kFloat = 1, kInt64 = 7 };

using Dims = std::vector<std::int64_t>;
constexpr std::int64_t kRows = -1;  // any number

using Attribute = std::string;  // encoded
Attribute whole(const std::string& name, std::int64_t value) {
  Attribute a;
  append(a, kAttributeName, name);
  append(a, kAttributeInt, value);
  append(a, kAttributeType, kIntAttribute);
  return a;
}
Attribute real(const std::string& name, double value) {
  Attribute a;
  append(a, kAttributeName, name);
  append(a, kAttributeFloat, static_cast<float>(value));
  append(a, kAttributeType, kFloatAttribute);
  return a;
}

// A graph while it is written: nodes in the order in which they run, constants beside them.
class Graph {
 public:
  // Adds a node with `outputs` results, named after itself; the name of its (first) result.
  std::string node(const std::string& op, const std::vector<std::string>& inputs,
                   const std::vector<Attribute>& attributes = {}, const std::vector<std::string>& outputs = {}) {
    const std::string name = fmt::format("{}_{}", op, ++nodes_);
    std::string encoded;
    for (const std::string& input : inputs) append(encoded, kNodeInput, input);
    for (const std::string& output : outputs) append(encoded, kNodeOutput, output);
    if (outputs.empty()) append(encoded, kNodeOutput, name);
    append(encoded, kNodeName, name);
    append(encoded, kNodeOperator, op);
    for (const Attribute& a : attributes) append(encoded, kNodeAttribute, a);
    append(graph_, kGraphNode, encoded);
    return outputs.empty() ? name : outputs.front();
  }

  template <class T>
  std::string constant(const std::string& name, const Dims& dims, std::span<const T> values) {
    constexpr Element element = std::is_same_v<T, float> ? Element::kFloat : Element::kInt64;
    std::string encoded;
    for (const std::int64_t d : dims) append(encoded, kTensorDims, d);
    append(encoded, kTensorType, static_cast<int>(element));
    append(encoded, kTensorName, name);
    append(encoded, kTensorBytes, std::string_view(reinterpret_cast<const char*>(values.data()), values.size_bytes()));
    append(graph_, kGraphInitializer, encoded);
    return name;
  }
  std::string constant(const std::string& name, const std::vector<float>& values) {
    return constant<float>(name, {static_cast<std::int64_t>(values.size())}, values);
  }

  void input(const std::string& name, Element type, const Dims& dims) { value(kGraphInput, name, type, dims); }
  void output(const std::string& name, Element type, const Dims& dims) { value(kGraphOutput, name, type, dims); }

  // Graph -> model.
  std::string model(const std::vector<std::pair<std::string, std::string>>& metadata) {
    std::string model, opset;
    append(graph_, kGraphName, "policy");
    append(opset, kOpsetVersion, kOpset);
    append(model, kModelIrVersion, kIrVersion);
    append(model, kModelProducer, "gipo");
    append(model, kModelGraph, graph_);
    append(model, kModelOpset, opset);
    for (const auto& [key, text] : metadata) {
      std::string entry;
      append(entry, kEntryKey, key);
      append(entry, kEntryValue, text);
      append(model, kModelMetadata, entry);
    }
    return model;
  }

 private:
  void value(std::uint32_t field, const std::string& name, Element type, const Dims& dims) {
    std::string shape, tensor, tensor_type, encoded;
    for (const std::int64_t d : dims) {
      std::string dim;
      if (d == kRows) {
        append(dim, kDimName, "rows");
      } else {
        append(dim, kDimValue, d);
      }
      append(shape, kShapeDim, dim);
    }
    append(tensor, kTensorTypeElement, static_cast<int>(type));
    append(tensor, kTensorTypeShape, shape);
    append(tensor_type, kTypeTensor, tensor);
    append(encoded, kValueName, name);
    append(encoded, kValueType, tensor_type);
    append(graph_, field, encoded);
  }

  std::string graph_;
  int nodes_ = 0;
};

std::string scaled_observation(Graph& g, const ObservationScale& scale) {
  std::string x = g.node("Sub", {"observation", g.constant("observation.mean", scale.mean)});
  x = g.node("Mul", {x, g.constant("observation.inverse_std", scale.inverse_std)});
  if (!std::isfinite(scale.limit)) return x;
  const float low = -scale.limit;
  return g.node("Clip", {x, g.constant<float>("observation.low", {}, {&low, 1}),
                         g.constant<float>("observation.high", {}, {&scale.limit, 1})});
}

// The policy's network; its last layer's result is called `output`.
void network(Graph& g, const ModelSpec& spec, std::span<const float> parameters, std::string x,
             const std::string& output) {
  const std::vector<TensorSlice> slices = Mlp<float>(spec.policy_shape, 0).slices();
  const auto tensor = [&](const std::string& name) {
    const auto it = std::find_if(slices.begin(), slices.end(), [&](const TensorSlice& s) { return s.name == name; });
    GIPO_CHECK(it != slices.end());
    std::size_t size = 1;
    for (const std::int64_t d : it->shape) size *= static_cast<std::size_t>(d);
    return g.constant<float>("policy." + name, it->shape, parameters.subspan(it->offset, size));
  };
  const std::size_t layers = spec.policy_shape.hidden.size();
  const char* activation = spec.policy_shape.activation == Activation::kTanh ? "Tanh" : "Relu";
  for (std::size_t i = 0; i <= layers; ++i) {
    const std::string name = std::to_string(i);
    const std::vector<std::string> inputs = {x, tensor(name + ".weight"), tensor(name + ".bias")};
    if (i == layers) {
      g.node("Gemm", inputs, {whole("transB", 1)}, {output});
      return;
    }
    x = g.node(activation, {g.node("Gemm", inputs, {whole("transB", 1)})});
    if (!spec.policy_shape.layer_norm) continue;
    x = g.node("LayerNormalization", {x, tensor(name + ".norm.weight"), tensor(name + ".norm.bias")},
               {whole("axis", -1), real("epsilon", kNormEpsilon)});
  }
}

// The index of the largest logit of every head, [N, dims]; `output` names it where it is not empty.
std::string choices(Graph& g, const DistributionSpec& spec, const std::string& output) {
  const std::vector<std::string> named = output.empty() ? std::vector<std::string>{} : std::vector{output};
  if (spec.dims == 1) return g.node("ArgMax", {"logits"}, {whole("axis", 1), whole("keepdims", 1)}, named);
  std::vector<std::string> heads, best;
  for (std::size_t d = 0; d < spec.dims; ++d) heads.push_back(fmt::format("logits.{}", d));
  const std::string sizes = g.constant<std::int64_t>("choices", {static_cast<std::int64_t>(spec.dims)}, spec.choices);
  g.node("Split", {"logits", sizes}, {whole("axis", 1)}, heads);
  for (const std::string& head : heads) {
    best.push_back(g.node("ArgMax", {head}, {whole("axis", 1), whole("keepdims", 1)}));
  }
  return g.node("Concat", best, {whole("axis", 1)}, named);
}

// to_env_action: x * factor + offset, then within the bounds, as the task takes it.
void box_action(Graph& g, const ModelSpec& spec, const std::string& x) {
  std::vector<float> factor, offset, low(spec.action.low.begin(), spec.action.low.end()),
      high(spec.action.high.begin(), spec.action.high.end());
  const bool binned = spec.distribution.kind == DistributionKind::kCategorical;
  for (std::size_t d = 0; d < spec.action.dims(); ++d) {
    const double from = spec.action.low[d], width = spec.action.high[d] - from;
    const bool bounded = std::isfinite(width);
    const double units = binned ? static_cast<double>(spec.distribution.choices[d] - 1) : 2.0;
    factor.push_back(static_cast<float>(bounded ? width / units : 1.0));
    offset.push_back(static_cast<float>(!bounded ? 0.0 : binned ? from : from + 0.5 * width));
  }
  std::string a = g.node("Mul", {x, g.constant("action.factor", factor)});
  a = g.node("Add", {a, g.constant("action.offset", offset)});
  a = g.node("Max", {a, g.constant("action.low", low)});
  g.node("Min", {a, g.constant("action.high", high)}, {}, {"action"});
}

}  // namespace

std::string policy_to_onnx(const SavedPolicy& policy) {
  const ModelSpec& spec = policy.model;
  const DistributionSpec& distribution = spec.distribution;
  const auto dims = static_cast<std::int64_t>(distribution.dims),
             outputs = static_cast<std::int64_t>(distribution.outputs());
  const bool gaussian = distribution.kind == DistributionKind::kGaussian;
  Graph g;
  g.input("observation", Element::kFloat, {kRows, static_cast<std::int64_t>(spec.observation_size)});
  const std::string x = scaled_observation(g, policy.weights.scale);
  network(g, spec, policy.weights.policy, x, gaussian ? "mean" : "logits");

  switch (spec.action.kind) {
    case ActionSpace::Kind::kDiscrete:
      g.node("ArgMax", {"logits"}, {whole("axis", 1), whole("keepdims", 0)}, {"action"});
      g.output("action", Element::kInt64, {kRows});
      break;
    case ActionSpace::Kind::kMultiDiscrete:
      choices(g, distribution, "action");
      g.output("action", Element::kInt64, {kRows, dims});
      break;
    case ActionSpace::Kind::kBox:
      box_action(
          g, spec,
          gaussian ? "mean"
                   : g.node("Cast", {choices(g, distribution, "")}, {whole("to", static_cast<int>(Element::kFloat))}));
      g.output("action", Element::kFloat, {kRows, dims});
      break;
    case ActionSpace::Kind::kComposed:
      throw Error("a policy with composed actions cannot be written as ONNX");
  }
  g.output(gaussian ? "mean" : "logits", Element::kFloat, {kRows, outputs});
  if (gaussian) {
    const std::span<const float> log_std = std::span(policy.weights.policy).last(distribution.dims);
    g.node("Identity", {g.constant<float>("policy.log_std", {dims}, log_std)}, {}, {"log_std"});
    g.output("log_std", Element::kFloat, {dims});
  }
  std::vector<std::pair<std::string, std::string>> metadata = {{"env", policy.env_id},
                                                               {"version", std::to_string(policy.weights.version)}};
  if (!spec.spaces.empty()) metadata.emplace_back("spaces", spec.spaces);
  return g.model(metadata);
}

}  // namespace gipo
