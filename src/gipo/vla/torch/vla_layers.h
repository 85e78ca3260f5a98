// What the large model is made of: layers with their weights and gradients, and what of each a forward keeps.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "gipo/vla/torch/vla_ops.h"
#include "gipo/vla/vla_config.h"

namespace gipo::vla {

// A product with weights that may be trained, or left as they are with a trained adapter beside them.
struct Linear {
  Tensor weight, bias, by_weight, by_bias;  // [out, in], [out]; the gradients undefined: not trained
  struct Adapter {
    Tensor a, by_a;               // [parts * rank, in]
    std::vector<Tensor> b, by_b;  // of each part [out of it, rank]
    double scale = 0;
  };
  std::optional<Adapter> adapter;
  std::optional<Fp8> fp8 = {};  // the weight, to take the product with in its place; there is no bias then

  Tensor forward(const Tensor& x) const {
    Tensor y = fp8 ? fp8_product(x, *fp8) : bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
    if (adapter) {
      const Tensor inner = at::mm(x, adapter->a.t());
      each_part(
          y, [&](std::size_t i, Tensor part) { part.addmm_(rank_of(inner, i), adapter->b[i].t(), 1, adapter->scale); });
    }
    return y;
  }

  Tensor input_gradient(const Tensor& by_y) const {
    Tensor by_x = at::mm(by_y, weight);
    if (adapter) by_x.addmm_(inner_gradient(by_y), adapter->a);
    return by_x;
  }

  // first: nothing was added so far.
  void weight_gradient(const Tensor& by_y, const Tensor& x, bool first) const {
    if (by_bias.defined()) by_bias.add_(by_y.sum(0));
    add_product(by_weight, by_y, x, 1, first);
    if (!adapter) return;
    const Tensor inner = at::mm(x, adapter->a.t());
    each_part(by_y, [&](std::size_t i, const Tensor& part) {
      add_product(adapter->by_b[i], part, rank_of(inner, i), adapter->scale, first);
    });
    add_product(adapter->by_a, inner_gradient(by_y), x, 1, first);
  }

 private:
  static void add_product(Tensor to, const Tensor& rows, const Tensor& x, double scale, bool first) {
    if (!to.defined()) return;
    if (first && scale == 1) {
      at::mm_out(to, rows.t(), x);
    } else {
      to.addmm_(rows.t(), x, first ? 0 : 1, scale);
    }
  }
  Tensor rank_of(const Tensor& inner, std::size_t part) const {
    const std::int64_t rank = adapter->b[part].size(1);
    return inner.narrow(1, static_cast<std::int64_t>(part) * rank, rank);
  }
  template <class F>
  void each_part(const Tensor& y, F&& f) const {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < adapter->b.size(); ++i) {
      f(i, y.narrow(1, at, adapter->b[i].size(0)));
      at += adapter->b[i].size(0);
    }
  }
  Tensor inner_gradient(const Tensor& by_y) const {
    Tensor by_inner = at::empty({by_y.size(0), adapter->a.size(0)}, by_y.options());
    each_part(by_y, [&](std::size_t i, const Tensor& part) {
      rank_of(by_inner, i).copy_(at::mm(part, adapter->b[i]).mul_(adapter->scale));
    });
    return by_inner;
  }
};

struct LayerNorm {
  Tensor weight, bias, by_weight, by_bias;
  double epsilon = 0;

  std::array<Tensor, 3> forward(const Tensor& x) const {  // normed, mean, 1 / deviation
    auto [y, mean, inverse] = at::native_layer_norm(x, {x.size(1)}, weight, bias, epsilon);
    return {y, mean, inverse};
  }
  Tensor gradient(const Tensor& by_y, const Tensor& x, const Tensor& mean, const Tensor& inverse) const {
    const bool trained = by_weight.defined();
    auto [by_x, by_w, by_b] =
        at::native_layer_norm_backward(by_y, x, {x.size(1)}, mean, inverse, weight, bias, {true, trained, trained});
    if (trained) {
      by_weight.add_(by_w);
      by_bias.add_(by_b);
    }
    return by_x;
  }
};

// A block of a tower. scale: of LayerScale; undefined: none.
struct Block {
  LayerNorm norm1, norm2;
  Linear qkv, proj, fc1, fc2;
  Tensor scale1, scale2, by_scale1, by_scale2;
};
struct BlockState {
  Tensor x, mean1, inverse1, qkv, y1, middle, mean2, inverse2, hidden, y2;
  Attended attended;
};

struct Tower {
  const TowerConfig* config = nullptr;
  Linear patch;  // [width, 3 patch patch]
  Tensor position, prefix[2], by_position, by_prefix[2];
  Tensor scale, shift;  // [3, 1] of pixels from 0 to 255
  std::vector<Block> blocks;
};
struct TowerState {
  Tensor patches;  // [images * patches, 3 patch patch]
  std::vector<BlockState> blocks;
};

// A layer of the language model. The last one has q apart from k and v: of it only the rows of the actions are wanted.
struct Layer {
  Tensor norm1, norm2, by_norm1, by_norm2;
  Linear qkv, q, kv, o, gate_up, down;
};
struct LayerState {
  Tensor x, qkv, q, kv, middle, gate_up;
  Attended attended;
};

struct Mlp {  // GELU between its products
  std::vector<Linear> layers;

  // seen: what each product was given before the GELU, and its input.
  Tensor forward(Tensor x, std::vector<Tensor>* seen) const {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (seen != nullptr) seen->push_back(x);
      if (i > 0) x = at::gelu(x);
      x = layers[i].forward(x);
    }
    return x;
  }
  Tensor gradient(Tensor by, const std::vector<Tensor>& seen, bool wanted, bool first) const {
    for (std::size_t i = layers.size(); i-- > 0;) {
      const Tensor by_input = i > 0 || wanted ? layers[i].input_gradient(by) : Tensor();
      layers[i].weight_gradient(by, i > 0 ? at::gelu(seen[i]) : seen[i], first);
      by = i > 0 ? at::gelu_backward(by_input, seen[i]) : by_input;
    }
    return by;
  }
};

}  // namespace gipo::vla
