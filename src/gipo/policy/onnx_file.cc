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

enum class Element { kFloat = 1, kInt64 = 7, kBool = 9 };

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

std::string scaled_observation(Graph& g, const ObservationScale& scale, std::size_t read) {
  const auto first = [read](const std::vector<float>& all) {
    return std::vector(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(read));
  };
  std::string x = g.node("Sub", {"observation", g.constant("observation.mean", first(scale.mean))});
  x = g.node("Mul", {x, g.constant("observation.inverse_std", first(scale.inverse_std))});
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

std::string concatenated(Graph& g, const std::vector<std::string>& parts, const std::string& output = "") {
  if (parts.size() == 1 && output.empty()) return parts[0];
  return g.node("Concat", parts, {whole("axis", 1)}, output.empty() ? std::vector<std::string>{} : std::vector{output});
}

// The logits from which the best are chosen: those of choices that are not valid are very low.
std::string valid_logits(Graph& g, const DistributionSpec& spec) {
  if (!spec.masked) return "logits";
  g.input("action_mask", Element::kBool, {kRows, static_cast<std::int64_t>(spec.mask_size())});
  const std::string low = g.constant<float>("masked_logit", {}, {&kMaskedLogit<float>, 1});
  return g.node("Where", {"action_mask", "logits", low});
}

// The index of the largest logit of every head, each [N, 1].
std::vector<std::string> best_choices(Graph& g, const DistributionSpec& spec, const std::string& logits) {
  std::vector<std::int64_t> sizes;
  std::vector<std::string> heads, best;
  for (std::size_t d = 0; d < spec.dims(); ++d) {
    if (spec.choices[d] == 0) continue;
    sizes.push_back(spec.choices[d]);
    heads.push_back(fmt::format("logits.{}", d));
  }
  if (heads.size() == 1) {
    heads = {logits};
  } else {
    const auto count = static_cast<std::int64_t>(sizes.size());
    g.node("Split", {logits, g.constant<std::int64_t>("choices", {count}, sizes)}, {whole("axis", 1)}, heads);
  }
  for (const std::string& head : heads) {
    best.push_back(g.node("ArgMax", {head}, {whole("axis", 1), whole("keepdims", 1)}));
  }
  return best;
}

std::string as_float(Graph& g, const std::string& x) {
  return g.node("Cast", {x}, {whole("to", static_cast<int>(Element::kFloat))});
}

// The network's outputs, dimension by dimension, as `logits` and `mean`. The names of the means, each [N, 1].
std::vector<std::string> split_outputs(Graph& g, const DistributionSpec& spec) {
  std::vector<std::int64_t> sizes;
  std::vector<std::string> all, logits, means;
  for (std::size_t d = 0; d < spec.dims(); ++d) {
    sizes.push_back(std::max<std::int64_t>(spec.choices[d], 1));
    all.push_back(fmt::format("output.{}", d));
    (spec.choices[d] > 0 ? logits : means).push_back(all.back());
  }
  const auto dims = static_cast<std::int64_t>(spec.dims());
  g.node("Split", {"outputs", g.constant<std::int64_t>("sizes", {dims}, sizes)}, {whole("axis", 1)}, all);
  concatenated(g, logits, "logits");
  concatenated(g, means, "mean");
  return means;
}

// to_env_action: x * factor + offset, then within the bounds, as the task takes it. A choice stays as it is.
void env_action(Graph& g, const ModelSpec& spec, const std::string& x) {
  std::vector<float> factor, offset, low, high;
  for (std::size_t d = 0; d < spec.action.dims(); ++d) {
    const bool number = spec.action.continuous(d), binned = spec.distribution.choices[d] > 0;
    const double from = number ? spec.action.low[d] : -HUGE_VAL, to = number ? spec.action.high[d] : HUGE_VAL;
    const double width = to - from;
    const bool bounded = std::isfinite(width);
    const double units = binned ? static_cast<double>(spec.distribution.choices[d] - 1) : 2.0;
    factor.push_back(static_cast<float>(bounded ? width / units : 1.0));
    offset.push_back(static_cast<float>(!bounded ? 0.0 : binned ? from : from + 0.5 * width));
    low.push_back(static_cast<float>(from));
    high.push_back(static_cast<float>(to));
  }
  std::string a = g.node("Mul", {x, g.constant("action.factor", factor)});
  a = g.node("Add", {a, g.constant("action.offset", offset)});
  a = g.node("Max", {a, g.constant("action.low", low)});
  g.node("Min", {a, g.constant("action.high", high)}, {}, {"action"});
}

// The numbers of all dimensions, choices beside means, [N, dims].
std::string mixed_numbers(Graph& g, const DistributionSpec& spec) {
  const std::vector<std::string> means = split_outputs(g, spec);
  const std::vector<std::string> best = best_choices(g, spec, valid_logits(g, spec));
  std::vector<std::string> numbers;
  auto mean = means.begin(), choice = best.begin();
  for (const std::int64_t n : spec.choices) numbers.push_back(n > 0 ? as_float(g, *choice++) : *mean++);
  return concatenated(g, numbers);
}

// The output `action`, from the network's outputs.
void action(Graph& g, const ModelSpec& spec) {
  const DistributionSpec& distribution = spec.distribution;
  const DistributionKind kind = distribution.kind();
  const auto dims = static_cast<std::int64_t>(distribution.dims());
  if (kind == DistributionKind::kGaussian) {
    env_action(g, spec, "mean");
  } else if (kind == DistributionKind::kMixed) {
    env_action(g, spec, mixed_numbers(g, distribution));
  } else if (const std::string logits = valid_logits(g, distribution);
             spec.action.kind == ActionSpace::Kind::kDiscrete) {
    g.node("ArgMax", {logits}, {whole("axis", 1), whole("keepdims", 0)}, {"action"});
    return g.output("action", Element::kInt64, {kRows});
  } else if (spec.action.kind == ActionSpace::Kind::kMultiDiscrete) {
    concatenated(g, best_choices(g, distribution, logits), "action");
    return g.output("action", Element::kInt64, {kRows, dims});
  } else {
    env_action(g, spec, as_float(g, concatenated(g, best_choices(g, distribution, logits))));
  }
  g.output("action", Element::kFloat, {kRows, dims});
}

}  // namespace

std::string policy_to_onnx(const SavedPolicy& policy) {
  const ModelSpec& spec = policy.model;
  const DistributionKind kind = spec.distribution.kind();
  const auto gaussians = static_cast<std::int64_t>(spec.distribution.extra_parameters()),
             choices = static_cast<std::int64_t>(spec.distribution.mask_size());
  Graph g;
  g.input("observation", Element::kFloat, {kRows, static_cast<std::int64_t>(spec.policy_shape.input)});
  const std::string x = scaled_observation(g, policy.weights.scale, spec.policy_shape.input);
  network(g, spec, policy.weights.policy, x,
          kind == DistributionKind::kGaussian ? "mean"
          : kind == DistributionKind::kMixed  ? "outputs"
                                              : "logits");
  action(g, spec);
  if (choices > 0) g.output("logits", Element::kFloat, {kRows, choices});
  if (gaussians > 0) {
    g.output("mean", Element::kFloat, {kRows, gaussians});
    const std::span<const float> log_std = std::span(policy.weights.policy).last(spec.distribution.extra_parameters());
    g.node("Identity", {g.constant<float>("policy.log_std", {gaussians}, log_std)}, {}, {"log_std"});
    g.output("log_std", Element::kFloat, {gaussians});
  }
  std::vector<std::pair<std::string, std::string>> metadata = {{"env", policy.env_id},
                                                               {"version", std::to_string(policy.weights.version)}};
  if (!spec.spaces.empty()) metadata.emplace_back("spaces", spec.spaces);
  return g.model(metadata);
}

}  // namespace gipo
