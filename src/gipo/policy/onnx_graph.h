#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gipo {

enum class OnnxElement { kFloat = 1, kUint8 = 2, kInt32 = 6, kInt64 = 7, kBool = 9 };
using OnnxDims = std::vector<std::int64_t>;
inline constexpr std::int64_t kOnnxRows = -1;  // a dimension of any size

using OnnxAttribute = std::string;  // encoded
OnnxAttribute onnx_whole(const std::string& name, std::int64_t value);
OnnxAttribute onnx_wholes(const std::string& name, std::initializer_list<std::int64_t> values);
OnnxAttribute onnx_real(const std::string& name, double value);

// An ONNX graph while it is written: nodes in the order in which they run, constants beside them.
class OnnxGraph {
 public:
  // Adds a node with `outputs` results, named after itself; the name of its (first) result.
  std::string node(const std::string& op, const std::vector<std::string>& inputs,
                   const std::vector<OnnxAttribute>& attributes = {}, const std::vector<std::string>& outputs = {});

  template <class T>
  std::string constant(const std::string& name, const OnnxDims& dims, std::span<const T> values);  // float, int64
  std::string constant(const std::string& name, const std::vector<float>& values) {
    return constant<float>(name, {static_cast<std::int64_t>(values.size())}, values);
  }

  void input(const std::string& name, OnnxElement type, const OnnxDims& dims);
  void output(const std::string& name, OnnxElement type, const OnnxDims& dims);

  // Graph -> model.
  std::string model(const std::vector<std::pair<std::string, std::string>>& metadata);

 private:
  void value(std::uint32_t field, const std::string& name, OnnxElement type, const OnnxDims& dims);

  std::string graph_;
  int nodes_ = 0;
};

}  // namespace gipo
