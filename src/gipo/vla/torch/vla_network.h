// The network of the large model over parameters that lie outside it, its gradients written out: what of a layer is kept, and
// what is computed again, is said here and nowhere else.
//
//   find_rows -> run -> hidden -+-> logits_of -> head_gradient -> backward
//                               +-> values_of -> value_gradient
//
// vla_network.cc says where what lies, vla_forward.cc and vla_gradient.cc what is computed.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gipo/vla/torch/vla_layers.h"
#include "gipo/vla/vla_model.h"

namespace gipo::vla {

// Flat arrays of parameters, and where in them each of vla_tensors() lies. A gradient that is undefined is not wanted.
struct Arrays {
  struct Flat {
    Tensor value, gradient;
  };
  struct Place {
    std::size_t flat = 0;
    std::int64_t begin = 0;
  };
  std::vector<Flat> flats;
  std::vector<Place> places;
};

// Where what lies in the rows of a batch: for each sample the token that begins a text, patches, proprio, the prompt's other
// tokens, zeros for the actions, the token that ends it.
struct Rows {
  std::int64_t n = 0, cameras = 0, rows = 0;
  Lengths all, used;
  std::array<Lengths, 2> images;                                   // of each tower's tokens
  Tensor tokens, token_rows, patch_rows, proprio_rows, used_rows;  // int64
  Tensor positions, used_positions;                                // int32
};

struct Forward {  // what of a forward the gradient needs
  Rows rows;
  std::array<TowerState, 2> towers;
  std::vector<Tensor> projector, proprio, value;
  std::vector<LayerState> layers;
  Tensor last, hidden;  // before and after the last norm, [n * actions, width]
};

class Network {
 public:
  static constexpr std::int64_t kMostCameras = 4;

  // fp8: the products of the language model's layers are taken in 8-bit floats, where their sizes are multiples of 16. Such a
  // network has no gradient.
  Network(const VlaSetup& setup, at::Device device, at::ScalarType type, bool fp8 = false);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  void bind(Arrays arrays);
  void take_fp8(bool frozen);  // the weights as they now are; frozen: also those that are not trained
  const std::vector<VlaTensor>& tensors() const { return tensors_; }
  at::ScalarType type() const { return type_; }
  at::Device device() const { return device_; }
  bool is_trained(std::size_t index) const { return flat_of(index).gradient.defined(); }
  Tensor value(std::size_t index) const { return view(index, flat_of(index).value, 1); }
  Tensor gradient(std::size_t index) const { return view(index, flat_of(index).gradient, 1); }
  std::pair<Tensor, Tensor> adapter_of(std::size_t index) const;  // a and b; undefined: none

  // Throws Error for inputs that do not fit: sizes, tokens out of range, a prompt that is too long.
  void check(const VlaInputs& inputs) const;
  void check_prompts(const VlaInputs& inputs) const;
  Rows find_rows(const VlaInputs& inputs) const;     // n, cameras and prompts are all it reads
  Tensor tokens_of(const VlaInputs& inputs) const;   // of all samples in the order of their rows
  Tensor images_of(const VlaInputs& inputs) const;   // [n * cameras, image, image, 3]
  Tensor proprio_of(const VlaInputs& inputs) const;  // [n, proprio]; undefined: none
  template <class T>
  Tensor on_device(std::span<const T> values, at::IntArrayRef shape, at::ScalarType type) const {
    return at::from_blob(const_cast<T*>(values.data()), shape, at::TensorOptions(type)).to(device_, false, true);
  }

  // The hidden states that logits come from, [n * actions, width]. keep: for a gradient.
  Tensor run(Forward& f, const Tensor& images, const Tensor& proprio, bool keep) const;
  Tensor logits_of(const Tensor& hidden) const;                            // [n * actions, choices]
  Tensor first_rows(const Forward& f, const Tensor& hidden) const;         // [n, width] what values come from
  Tensor values_of(const Tensor& first, std::vector<Tensor>* seen) const;  // [n]

  // Before the first gradient of several that are added up, and after each.
  void begin_gradient();
  void end_gradient() { first_ = false; }
  // By the hidden states, from by_logits [n * actions, choices] float; that of the action head is added.
  Tensor head_gradient(const Forward& f, const Tensor& by_logits) const;
  // From by_values [n]: by what values came from where that is wanted; that of the value head is added.
  Tensor value_gradient(const std::vector<Tensor>& seen, const Tensor& by_values, bool wanted) const;
  void backward(Forward& f, const Tensor& by_hidden) const;

 private:
  const Arrays::Flat& flat_of(std::size_t index) const { return arrays_.flats[arrays_.places[index].flat]; }
  std::size_t find(const std::string& name) const;
  Tensor view(std::size_t index, const Tensor& flat, std::size_t count) const;
  Tensor value(const std::string& name, std::size_t count = 1) const;
  Tensor by(const std::string& name, bool cleared, std::size_t count = 1);
  Linear linear(const std::string& name);
  LayerNorm layer_norm(const std::string& name);
  Linear products(const std::string& layer, const std::vector<std::string>& names);
  void build_tower(Tower& tower, const TowerConfig& config);

  Tensor patches_of(const Tensor& images) const;
  Tensor run_tower(const Tower& tower, TowerState& state, const Tensor& images, const Lengths& lengths,
                   bool keep) const;
  Tensor run_block(const Tower& tower, std::size_t index, BlockState& s, const Tensor& x, const Lengths& lengths) const;
  std::pair<Tensor, Tensor> run_layer(std::size_t index, LayerState& s, const Tensor& x, const Tensor& y,
                                      const Rows& rows) const;
  const Tensor& run_to_product(std::size_t index, LayerState& s, const Tensor& normed, const Rows& rows) const;
  LayerState kept(std::size_t index, LayerState s) const;
  bool is_last(std::size_t index) const { return index + 1 == layers_.size(); }
  bool trains_vision() const { return towers_[0].patch.by_weight.defined(); }

  Tensor layer_gradient(std::size_t index, LayerState& s, const Tensor& by_out, const Rows& rows) const;
  Tensor last_gradient(const Layer& l, const LayerState& s, const Tensor& by_attended, const Tensor& by_middle,
                       const Rows& rows) const;
  void tower_gradient(const Tower& tower, TowerState& state, const Tensor& by_features, const Lengths& lengths) const;
  Tensor block_gradient(const Tower& tower, std::size_t index, BlockState& s, const Tensor& by_out,
                        const Lengths& lengths) const;

  VlaConfig c_;
  LoraConfig lora_;
  Recompute recompute_;
  at::Device device_;
  at::ScalarType type_;
  bool fp8_;
  std::vector<VlaTensor> tensors_;
  std::map<std::string, std::size_t> index_;
  Arrays arrays_;
  std::vector<Tensor> cleared_;
  bool first_ = true;  // no gradient yet

  std::array<Tower, 2> towers_;
  Mlp projector_, proprio_, value_;
  Tensor embedding_, by_embedding_, norm_, by_norm_, head_, by_head_, table_;
  std::vector<Layer> layers_;
};

}  // namespace gipo::vla
