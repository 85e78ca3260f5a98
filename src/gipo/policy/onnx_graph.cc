#include "gipo/policy/onnx_graph.h"

#include <fmt/format.h>

#include <type_traits>

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
constexpr std::uint32_t kAttributeName = 1, kAttributeFloat = 2, kAttributeInt = 3, kAttributeInts = 8,
                        kAttributeType = 20;
constexpr std::uint32_t kTensorDims = 1, kTensorType = 2, kTensorName = 8, kTensorBytes = 9;
constexpr std::uint32_t kValueName = 1, kValueType = 2, kTypeTensor = 1, kTensorTypeElement = 1, kTensorTypeShape = 2;
constexpr std::uint32_t kShapeDim = 1, kDimValue = 1, kDimName = 2;
constexpr int kFloatAttribute = 1, kIntAttribute = 2, kIntsAttribute = 7;
constexpr int kIrVersion = 8, kOpset = 17;  // LayerNormalization came with 17

}  // namespace

OnnxAttribute onnx_whole(const std::string& name, std::int64_t value) {
  OnnxAttribute a;
  append(a, kAttributeName, name);
  append(a, kAttributeInt, value);
  append(a, kAttributeType, kIntAttribute);
  return a;
}

OnnxAttribute onnx_wholes(const std::string& name, std::initializer_list<std::int64_t> values) {
  OnnxAttribute a;
  append(a, kAttributeName, name);
  for (const std::int64_t value : values) append(a, kAttributeInts, value);
  append(a, kAttributeType, kIntsAttribute);
  return a;
}

OnnxAttribute onnx_real(const std::string& name, double value) {
  OnnxAttribute a;
  append(a, kAttributeName, name);
  append(a, kAttributeFloat, static_cast<float>(value));
  append(a, kAttributeType, kFloatAttribute);
  return a;
}

std::string OnnxGraph::node(const std::string& op, const std::vector<std::string>& inputs,
                            const std::vector<OnnxAttribute>& attributes, const std::vector<std::string>& outputs) {
  const std::string name = fmt::format("{}_{}", op, ++nodes_);
  std::string encoded;
  for (const std::string& input : inputs) append(encoded, kNodeInput, input);
  for (const std::string& output : outputs) append(encoded, kNodeOutput, output);
  if (outputs.empty()) append(encoded, kNodeOutput, name);
  append(encoded, kNodeName, name);
  append(encoded, kNodeOperator, op);
  for (const OnnxAttribute& a : attributes) append(encoded, kNodeAttribute, a);
  append(graph_, kGraphNode, encoded);
  return outputs.empty() ? name : outputs.front();
}

template <class T>
std::string OnnxGraph::constant(const std::string& name, const OnnxDims& dims, std::span<const T> values) {
  constexpr OnnxElement kElement = std::is_same_v<T, float> ? OnnxElement::kFloat : OnnxElement::kInt64;
  std::string encoded;
  for (const std::int64_t d : dims) append(encoded, kTensorDims, d);
  append(encoded, kTensorType, static_cast<int>(kElement));
  append(encoded, kTensorName, name);
  append(encoded, kTensorBytes, std::string_view(reinterpret_cast<const char*>(values.data()), values.size_bytes()));
  append(graph_, kGraphInitializer, encoded);
  return name;
}
template std::string OnnxGraph::constant(const std::string&, const OnnxDims&, std::span<const float>);
template std::string OnnxGraph::constant(const std::string&, const OnnxDims&, std::span<const std::int64_t>);

void OnnxGraph::input(const std::string& name, OnnxElement type, const OnnxDims& dims) {
  value(kGraphInput, name, type, dims);
}
void OnnxGraph::output(const std::string& name, OnnxElement type, const OnnxDims& dims) {
  value(kGraphOutput, name, type, dims);
}

std::string OnnxGraph::model(const std::vector<std::pair<std::string, std::string>>& metadata) {
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

void OnnxGraph::value(std::uint32_t field, const std::string& name, OnnxElement type, const OnnxDims& dims) {
  std::string shape, tensor, tensor_type, encoded;
  for (const std::int64_t d : dims) {
    std::string dim;
    if (d == kOnnxRows) {
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

}  // namespace gipo
