#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gipo/policy/networks.h"
#include "gipo/policy/onnx_graph.h"
#include "gipo/policy/tensor_slice.h"

namespace gipo {

// The backend of networks.h that writes nodes of an ONNX graph, the parameters as constants.
class OnnxNetworks {
 public:
  using Value = std::string;  // the name of a node

  // state: the node that a recurrent layer begins with; it ends with the node next_state.
  OnnxNetworks(OnnxGraph& graph, std::span<const TensorSlice> slices, std::span<const float> parameters,
               std::string state = {})
      : graph_(graph), slices_(slices), parameters_(parameters), state_(std::move(state)) {}

  void enter(const std::string&) {}
  Value conv(const std::string& name, const Value& x, const Conv& conv);
  Value linear(const std::string& name, const Value& x, std::int64_t out);
  Value norm(const std::string& name, const Value& x);
  Value lookup(const std::string& name, const Value& x, const std::vector<std::int64_t>& choices);
  Value parameter(const std::string& name, const std::vector<std::int64_t>& shape);
  Value activate(const Value& x, Activation activation);
  Value pool(const Value& x);
  Value add(const Value& x, const Value& y) { return graph_.node("Add", {x, y}); }
  Value attention(const Value& q, const Value& k, const Value& v);
  Value tokens(const Value& x);
  Value mean_of_tokens(const Value& x);
  Value gru(const std::string& name, const Value& x, std::int64_t size);
  Value window(const Value& x, std::int64_t block, const Window& window);
  Value newest(const Value& x);
  Value recall(const Value& q, const Value& k, const Value& v);
  Value gate(const std::string& name, const Value& x, const Value& y) { return cell(name, y, x, name + ".out"); }
  Value flat(const Value& x) { return graph_.node("Flatten", {x}, {onnx_whole("axis", 1)}); }
  Value join(const std::vector<Value>& all);

 private:
  Value next();
  Value cell(const std::string& name, const Value& x, const Value& state, const std::string& output);
  Value number(const std::vector<float>& values);
  Value sliced(const Value& x, std::int64_t begin, std::int64_t end);
  Value reshaped(const Value& x, std::initializer_list<std::int64_t> shape);
  Value turned(const Value& x, std::initializer_list<std::int64_t> order);

  OnnxGraph& graph_;
  std::span<const TensorSlice> slices_;
  std::span<const float> parameters_;
  std::string state_;
  Window window_;                   // of the last block
  std::string hidden_;              // what of it was not there, as what scores lose
  std::vector<std::string> after_;  // the state after, so far
  std::size_t used_ = 0, shapes_ = 0;
};

}  // namespace gipo
