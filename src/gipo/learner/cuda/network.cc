#include "gipo/learner/cuda/network.h"

namespace gipo::cuda {
namespace {

int out_of(const MlpShape& shape, std::size_t layer) {
  return static_cast<int>(layer < shape.hidden.size() ? shape.hidden[layer] : static_cast<std::int64_t>(shape.output));
}

std::size_t floats(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

}  // namespace

Network::Network(const MlpShape& shape, int rows, int learned, float* gradient, std::size_t wider_layer, int wider)
    : shape_(shape), norm_(shape.layer_norm), rows_(rows), learned_(learned) {
  std::size_t at = 0;
  int in = static_cast<int>(shape.input);
  for (std::size_t i = 0; i <= shape.hidden.size(); ++i) {
    Layer l;
    const bool hidden = i < shape.hidden.size(), normalised = hidden && norm_;
    l.in = in;
    l.out = in = out_of(shape, i);
    l.stride = l.out + (wider > 0 && i == wider_layer ? wider : 0);
    l.weight = at;
    l.bias = l.weight + floats(l.in, l.out);
    at = l.bias + static_cast<std::size_t>(l.out);
    l.activation = CardArray<float>(floats(rows, normalised ? l.out : l.stride));
    if (normalised) {
      l.gain = at;
      l.shift = l.gain + static_cast<std::size_t>(l.out);
      at = l.shift + static_cast<std::size_t>(l.out);
      l.normalised = CardArray<float>(floats(rows, l.stride));
      l.mean = CardArray<float>(static_cast<std::size_t>(rows));
      l.inverse_std = CardArray<float>(static_cast<std::size_t>(rows));
    }
    if (learned > 0) {
      l.splits = splits_of(l.out, l.in, learned);
      if (static_cast<int>(i) < kMostWhole && is_whole(l.out, l.in, l.splits)) {
        l.gradient = gradient + l.weight;
        l.squares = CardArray<double>(static_cast<std::size_t>(gradient_tiles(l.out, l.in)));
      } else {
        l.parts = CardArray<float>(static_cast<std::size_t>(l.splits) * floats(l.in + 1, l.out));
      }
      if (hidden) l.delta = CardArray<float>(floats(learned, l.out));
      if (normalised) l.norm_sums = CardArray<float>(floats(norm_blocks(learned), 2 * l.out));
    }
    layers_.push_back(std::move(l));
  }
}

double network_bytes(const MlpShape& shape, int rows, int learned) {
  double all = 0, in = static_cast<double>(shape.input);
  for (std::size_t i = 0; i <= shape.hidden.size(); ++i) {
    const double out = out_of(shape, i);
    all += out * rows * (i < shape.hidden.size() && shape.layer_norm ? 2 : 1);
    if (learned > 0) {
      all += out * learned + (in + 1) * out * splits_of(static_cast<int>(out), static_cast<int>(in), learned);
    }
    in = out;
  }
  return sizeof(float) * all;
}

float* Network::output(int layer) const {
  const Layer& l = layers_[static_cast<std::size_t>(layer)];
  return (l.normalised.empty() ? l.activation : l.normalised).data();
}

Product Network::forward(int layer, const float* parameters, const float* x, int ldx, int rows,
                         const int* rows_on_card) const {
  const Layer& l = layers_[static_cast<std::size_t>(layer)];
  Product p;
  p.form = Form::kForward;
  p.activation = layer + 1 < layers() ? shape_.activation : Activation::kNone;
  p.a = x;
  p.lda = ldx;
  p.b = parameters + l.weight;
  p.ldb = l.in;
  p.bias = parameters + l.bias;
  p.c = l.activation.data();
  p.ldc = l.normalised.empty() ? l.stride : l.out;
  p.m = rows;
  p.rows = rows_on_card;
  p.n = l.out;
  p.k = l.in;
  return p;
}

NormLayer Network::norm(int layer, const float* parameters, int rows, const int* rows_on_card) const {
  const Layer& l = layers_[static_cast<std::size_t>(layer)];
  NormLayer n;
  n.x = l.activation.data();
  n.gain = parameters + l.gain;
  n.shift = parameters + l.shift;
  n.mean = l.mean.data();
  n.inverse_std = l.inverse_std.data();
  n.z = l.normalised.data();
  n.rows = rows_on_card;
  n.most_rows = rows;
  n.width = l.out;
  n.ldz = l.stride;
  return n;
}

NormLayer Network::norm_backward(int layer, const float* parameters) const {
  const Layer& l = layers_[static_cast<std::size_t>(layer)];
  NormLayer n = norm(layer, parameters, learned_, nullptr);
  n.delta = l.delta.data();
  n.sums = l.norm_sums.data();
  n.activation = shape_.activation;
  return n;
}

void Network::backward(int layer, const float* parameters, const float* x, int ldx, const float* d_output,
                       std::vector<Product>& products) const {
  const Layer& l = layers_[static_cast<std::size_t>(layer)];
  const float* delta = d_output ? d_output : l.delta.data();
  Product w;
  w.form = Form::kWeightGradient;
  w.a = delta;
  w.lda = l.out;
  w.b = x;
  w.ldb = ldx;
  w.c = l.gradient ? l.gradient : l.parts.data();
  w.ldc = l.in;
  w.sums = w.c + floats(l.in, l.out);
  w.squares = l.squares.data();
  w.m = l.out;
  w.n = l.in;
  w.k = learned_;
  w.splits = l.splits;
  w.split_stride = floats(l.in + 1, l.out);
  products.push_back(w);
  if (layer == 0) return;
  const Layer& below = layers_[static_cast<std::size_t>(layer - 1)];
  Product p;
  p.form = Form::kInputGradient;
  p.a = delta;
  p.lda = l.out;
  p.b = parameters + l.weight;
  p.ldb = l.in;
  p.c = below.delta.data();
  p.ldc = l.in;
  p.m = learned_;
  p.n = l.in;
  p.k = l.out;
  if (!norm_) {  // else the slope comes after LayerNorm's derivative
    p.activation = shape_.activation;
    p.below = below.activation.data();
    p.ld_below = below.stride;
  }
  products.push_back(p);
}

void Network::gradient_parts(int base, bool critic, std::vector<GradientPart>& parts) const {
  for (const Layer& l : layers_) {
    const std::size_t count = floats(l.in + 1, l.out);
    GradientPart part{l.parts.data(),          count,    base + static_cast<int>(l.weight),
                      static_cast<int>(count), l.splits, critic};
    part.whole = {l.squares.data(), static_cast<int>(l.squares.size())};
    parts.push_back(part);
    if (l.norm_sums.empty()) continue;
    parts.push_back({l.norm_sums.data(), 2 * static_cast<std::size_t>(l.out), base + static_cast<int>(l.gain),
                     2 * l.out, norm_blocks(learned_), critic});
  }
}

}  // namespace gipo::cuda
