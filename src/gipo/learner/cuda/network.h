// An MLP on a card: where its layers lie, and the launches of forward and backward.
#pragma once

#include <cstddef>
#include <vector>

#include "gipo/learner/cuda/layer_norm.h"
#include "gipo/learner/cuda/memory.h"
#include "gipo/learner/cuda/products.h"
#include "gipo/learner/cuda/step.h"
#include "gipo/policy/mlp.h"

namespace gipo::cuda {

// One network over parameters that lie outside it, flat as Mlp has them, with its activations and what its gradient is
// made of. Launches of several networks are put together by whoever owns them.
class Network {
 public:
  // rows: the most that are seen. learned: those, the first, that gradients are of; 0: none are.
  // gradient: where those that are made in one part belong. wider: floats that stand free behind each row of hidden layer
  // `wider_layer`.
  Network(const MlpShape& shape, int rows, int learned, float* gradient = nullptr, std::size_t wider_layer = 0,
          int wider = 0);

  int layers() const { return static_cast<int>(layers_.size()); }
  float* output(int layer) const;  // what the next layer sees
  int stride(int layer) const { return layers_[static_cast<std::size_t>(layer)].stride; }
  const float* outputs() const { return output(layers() - 1); }

  // A layer for x, whose rows are ldx apart. rows_on_card: how many there are, or null: `rows` of them.
  Product forward(int layer, const float* parameters, const float* x, int ldx, int rows, const int* rows_on_card) const;
  bool has_norm(int layer) const { return norm_ && layer + 1 < layers(); }
  NormLayer norm(int layer, const float* parameters, int rows, const int* rows_on_card) const;

  // The gradient of a layer, and of what it saw but for the first. delta: null, that of the layer above.
  void backward(int layer, const float* parameters, const float* x, int ldx, const float* d_output,
                std::vector<Product>& products) const;
  NormLayer norm_backward(int layer, const float* parameters) const;
  // The parts of the gradient, whose parameters begin at `base` of the flat buffer.
  void gradient_parts(int base, bool critic, std::vector<GradientPart>& parts) const;

 private:
  struct Layer {
    int in = 0, out = 0, stride = 0, splits = 1;
    std::size_t weight = 0, bias = 0, gain = 0, shift = 0;  // offsets of parameters
    CardArray<float> activation, normalised, mean, inverse_std, delta;
    float* gradient = nullptr;          // of this layer, where it is made in one part
    CardArray<double> squares;          // [tiles] of that
    CardArray<float> parts, norm_sums;  // otherwise [splits, (in + 1) out]; [blocks of rows, 2 out]
  };

  MlpShape shape_;
  bool norm_;
  int rows_, learned_;
  std::vector<Layer> layers_;
};

// What such a network takes of the card, in bytes.
double network_bytes(const MlpShape& shape, int rows, int learned);

}  // namespace gipo::cuda
