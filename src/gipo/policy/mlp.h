#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gipo/core/aligned_vector.h"
#include "gipo/kernels/dense.h"
#include "gipo/policy/tensor_slice.h"

namespace gipo {

class RandomStream;

struct MlpShape {
  std::size_t input = 0;
  std::vector<std::int64_t> hidden;
  std::size_t output = 0;
  Activation activation = Activation::kTanh;
  bool layer_norm = false;  // after every hidden activation
};

// A matrix of so many rows, its rows or columns, whichever are fewer, orthogonal and of length `gain`.
template <class T>
void fill_orthogonal(std::span<T> matrix, std::size_t rows, double gain, RandomStream& random);

// A multi-layer perceptron with closed-form gradients over an external flat parameter buffer. Keeps the activations of
// its last forward for backward, in workspace made once for max_rows samples. One thread at a time; make one per user.
template <class T>
class Mlp {
 public:
  Mlp(const MlpShape& shape, std::size_t max_rows);
  static double bytes_needed(const MlpShape& shape, std::size_t max_rows);  // of its workspace

  const MlpShape& shape() const { return shape_; }
  std::size_t layers() const { return layers_.size(); }  // the output's included
  std::size_t parameter_count() const { return parameter_count_; }
  // Tensors in torch's names and layout: "0.weight" [out, in], "0.bias" [out], "0.norm.weight", "0.norm.bias".
  std::vector<TensorSlice> slices() const;

  // Orthogonal weights (gain sqrt 2 inside, output_gain at the end), zero biases, unit norms.
  void initialise(std::span<T> parameters, RandomStream& random, double output_gain) const;

  // Weights and biases uniform within 1/sqrt(inputs), unit norms: PyTorch's default.
  void initialise_uniform(std::span<T> parameters, RandomStream& random) const;

  // x: [rows, input], one sample after another. Returns the outputs [rows, output]; they stay valid until the next call.
  // `changed`: whether the parameters are others than those of the last call.
  const T* forward(std::span<const T> parameters, const T* x, std::size_t rows, bool changed = true);
  // Layers [begin, end) alone; x is what the first of them sees.
  // Returns x where there are none.
  const T* forward_layers(std::size_t begin, std::size_t end, std::span<const T> parameters, const T* x,
                          std::size_t rows, bool changed = true);
  // Adds nothing: overwrites `gradient` with that of the last forward, its first `rows` samples, for d_output [rows, output].
  void backward(std::span<const T> parameters, const T* x, std::size_t rows, const T* d_output, std::span<T> gradient);

 private:
  struct Layer {
    std::size_t in = 0, out = 0;
    std::size_t weight = 0, bias = 0, norm_weight = 0, norm_bias = 0;  // offsets
    bool hidden = false;
    AlignedVector<T> packed;           // [in * out] the weight as the kernels read it
    AlignedVector<T> activation;       // [max_rows, out] after the activation function; the output layer: its output
    AlignedVector<T> output;           // [max_rows, out] LayerNorm: what the next layer sees
    std::vector<T> mean, inverse_std;  // [max_rows] LayerNorm: of the activation
  };
  const T* layer_output(const Layer& layer) const {
    return (layer.hidden && shape_.layer_norm ? layer.output : layer.activation).data();
  }

  MlpShape shape_;
  const DenseKernels<T>& kernels_;
  std::size_t parameter_count_ = 0, max_rows_ = 0;
  std::vector<Layer> layers_;
  AlignedVector<T> delta_, delta_below_;  // [max_rows, widest layer]
};

}  // namespace gipo
