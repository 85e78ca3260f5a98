#pragma once

#include <span>
#include <string>
#include <vector>

#include "gipo/policy/encoder.h"
#include "gipo/policy/options.h"
#include "gipo/policy/tensor_slice.h"

namespace gipo {

class RandomStream;
struct Conv;
struct Window;

// The backend of networks.h that computes nothing: it lists the parameters, and what passes through the layers.
class NetworkLayout {
 public:
  using Value = std::vector<std::int64_t>;  // the shape of a row

  void enter(const std::string& part) { part_ = part; }
  Value conv(const std::string& name, const Value& x, const Conv& conv);
  Value linear(const std::string& name, Value x, std::int64_t out);
  Value norm(const std::string& name, Value x);
  Value lookup(const std::string& name, const Value& x, const std::vector<std::int64_t>& choices);
  Value parameter(const std::string& name, const Value& shape);
  Value activate(Value x, Activation activation);
  Value pool(const Value& x);
  Value add(Value x, const Value& y);
  Value attention(const Value& q, const Value& k, const Value& v);
  Value tokens(const Value& x);
  Value mean_of_tokens(const Value& x);
  Value gru(const std::string& name, const Value& x, std::int64_t size);
  Value window(const Value& x, std::int64_t block, const Window& window);
  Value newest(const Value& x) { return {x[1]}; }
  Value recall(const Value& q, const Value& k, const Value& v);
  Value gate(const std::string& name, const Value& x, const Value& y);
  Value flat(const Value& x);
  Value join(const std::vector<Value>& all);

  const std::vector<TensorSlice>& slices() const { return slices_; }
  std::size_t parameter_count() const { return count_; }
  double floats_of_a_row() const { return floats_; }  // of all that layers make of it

  // The first weights, as Mlp has them: the last matrix with a gain of its own.
  void initialise(std::span<float> parameters, RandomStream& random, FirstWeights how, double output_gain) const;

 private:
  enum class First { kMatrix, kBias, kOne, kZero, kVector, kGates, kKeep };
  void add_slice(const std::string& name, Value shape, First first);
  Value made(Value shape);

  std::string part_;
  std::vector<TensorSlice> slices_;
  std::vector<First> first_;  // of each
  std::size_t count_ = 0;
  double floats_ = 0;
};

// The shapes of what an encoder sees of a field and of what it makes of it. The second throws Error, naming both, where a
// layer has no room.
NetworkLayout::Value input_of(Encoder encoder, const Field& field);
NetworkLayout::Value encoder_layout(Encoder encoder, const Field& field);

}  // namespace gipo
