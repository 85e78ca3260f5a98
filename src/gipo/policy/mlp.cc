#include "gipo/policy/mlp.h"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/core/random.h"

namespace gipo {
namespace {

Eigen::Index index(std::size_t i) { return static_cast<Eigen::Index>(i); }

// Rows or columns orthonormal, whichever are fewer; uniform over such matrices.
Eigen::MatrixXd orthogonal(std::size_t rows, std::size_t columns, RandomStream& random) {
  const bool tall = rows >= columns;
  Eigen::MatrixXd normal(index(std::max(rows, columns)), index(std::min(rows, columns)));
  for (Eigen::Index i = 0; i < normal.size(); ++i) normal.data()[i] = random.normal();
  const Eigen::HouseholderQR<Eigen::MatrixXd> qr(normal);
  Eigen::MatrixXd q = qr.householderQ() * Eigen::MatrixXd::Identity(normal.rows(), normal.cols());
  // The sign of R's diagonal makes the draw uniform.
  for (Eigen::Index j = 0; j < q.cols(); ++j) {
    if (qr.matrixQR()(j, j) < 0) q.col(j) = -q.col(j);
  }
  if (tall) return q;
  return q.transpose();
}

}  // namespace

template <class T>
void fill_orthogonal(std::span<T> matrix, std::size_t rows, double gain, RandomStream& random) {
  const std::size_t columns = matrix.size() / rows;
  const Eigen::MatrixXd weight = gain * orthogonal(rows, columns, random);
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    matrix[i] = static_cast<T>(weight(index(i / columns), index(i % columns)));
  }
}
template void fill_orthogonal(std::span<float>, std::size_t, double, RandomStream&);

template <class T>
Mlp<T>::Mlp(const MlpShape& shape, std::size_t max_rows)
    : shape_(shape), kernels_(dense_kernels<T>()), max_rows_(max_rows) {
  std::size_t in = shape.input, widest = shape.output;
  for (std::size_t i = 0; i <= shape.hidden.size(); ++i) {
    Layer layer;
    layer.hidden = i < shape.hidden.size();
    layer.in = in;
    layer.out = layer.hidden ? static_cast<std::size_t>(shape.hidden[i]) : shape.output;
    layer.weight = parameter_count_;
    layer.bias = layer.weight + layer.in * layer.out;
    parameter_count_ = layer.bias + layer.out;
    if (max_rows > 0) layer.packed.resize(layer.in * layer.out);
    layer.activation.resize(max_rows * layer.out);
    if (layer.hidden && shape.layer_norm) {
      layer.norm_weight = parameter_count_;
      layer.norm_bias = layer.norm_weight + layer.out;
      parameter_count_ = layer.norm_bias + layer.out;
      layer.output.resize(max_rows * layer.out);
      layer.mean.resize(max_rows);
      layer.inverse_std.resize(max_rows);
    }
    in = layer.out;
    widest = std::max(widest, layer.out);
    layers_.push_back(std::move(layer));
  }
  delta_.resize(max_rows * widest);
  delta_below_.resize(max_rows * widest);
}

// As the constructor allocates it.
template <class T>
double Mlp<T>::bytes_needed(const MlpShape& shape, std::size_t max_rows) {
  if (max_rows == 0) return 0;
  double values = 0, in = static_cast<double>(shape.input), widest = static_cast<double>(shape.output);
  const auto rows = static_cast<double>(max_rows);
  for (std::size_t i = 0; i <= shape.hidden.size(); ++i) {
    const bool hidden = i < shape.hidden.size();
    const double out = static_cast<double>(hidden ? shape.hidden[i] : static_cast<std::int64_t>(shape.output));
    values += in * out + rows * out;
    if (hidden && shape.layer_norm) values += rows * (out + 2);
    widest = std::max(widest, out);
    in = out;
  }
  return sizeof(T) * (values + 2 * rows * widest);
}

template <class T>
std::vector<TensorSlice> Mlp<T>::slices() const {
  std::vector<TensorSlice> all;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const auto in = static_cast<std::int64_t>(layer.in), out = static_cast<std::int64_t>(layer.out);
    const std::string name = std::to_string(i);
    all.push_back({name + ".weight", layer.weight, {out, in}});
    all.push_back({name + ".bias", layer.bias, {out}});
    if (layer.hidden && shape_.layer_norm) {
      all.push_back({name + ".norm.weight", layer.norm_weight, {out}});
      all.push_back({name + ".norm.bias", layer.norm_bias, {out}});
    }
  }
  return all;
}

template <class T>
void Mlp<T>::initialise(std::span<T> parameters, RandomStream& random, double output_gain) const {
  GIPO_CHECK(parameters.size() == parameter_count_);
  std::fill(parameters.begin(), parameters.end(), T(0));
  for (const Layer& layer : layers_) {
    fill_orthogonal(parameters.subspan(layer.weight, layer.out * layer.in), layer.out,
                    layer.hidden ? std::sqrt(2.0) : output_gain, random);
    if (layer.hidden && shape_.layer_norm) std::fill_n(parameters.begin() + index(layer.norm_weight), layer.out, T(1));
  }
}

template <class T>
void Mlp<T>::initialise_uniform(std::span<T> parameters, RandomStream& random) const {
  GIPO_CHECK(parameters.size() == parameter_count_);
  std::fill(parameters.begin(), parameters.end(), T(0));
  for (const Layer& layer : layers_) {
    const double within = 1.0 / std::sqrt(static_cast<double>(layer.in));
    for (std::size_t i = 0; i < (layer.in + 1) * layer.out; ++i) {
      parameters[layer.weight + i] = static_cast<T>(within * (2.0 * random.uniform() - 1.0));
    }
    if (layer.hidden && shape_.layer_norm) std::fill_n(parameters.begin() + index(layer.norm_weight), layer.out, T(1));
  }
}

template <class T>
const T* Mlp<T>::forward(std::span<const T> parameters, const T* x, std::size_t rows, bool changed) {
  return forward_layers(0, layers_.size(), parameters, x, rows, changed);
}

template <class T>
const T* Mlp<T>::forward_layers(std::size_t begin, std::size_t end, std::span<const T> parameters, const T* x,
                                std::size_t rows, bool changed) {
  GIPO_CHECK(parameters.size() == parameter_count_ && (begin == end || rows <= max_rows_));
  for (std::size_t i = begin; i < end; ++i) {
    Layer& layer = layers_[i];
    const T* weight = parameters.data() + layer.weight;
    if (changed) kernels_.pack(weight, layer.packed.data(), layer.in, layer.out);
    kernels_.affine(weight, layer.packed.data(), parameters.data() + layer.bias, x, layer.activation.data(), layer.in,
                    layer.out, rows, layer.hidden ? shape_.activation : Activation::kNone);
    if (layer.hidden && shape_.layer_norm) {
      kernels_.layer_norm(layer.activation.data(), parameters.data() + layer.norm_weight,
                          parameters.data() + layer.norm_bias, layer.output.data(), layer.mean.data(),
                          layer.inverse_std.data(), layer.out, rows);
    }
    x = layer_output(layer);
  }
  return x;
}

template <class T>
void Mlp<T>::backward(std::span<const T> parameters, const T* x, std::size_t rows, const T* d_output,
                      std::span<T> gradient) {
  GIPO_CHECK(gradient.size() == parameter_count_ && rows <= max_rows_);
  const T* delta = d_output;
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const Layer& layer = layers_[i];
    kernels_.weight_gradient(delta, i == 0 ? x : layer_output(layers_[i - 1]), gradient.data() + layer.weight,
                             gradient.data() + layer.bias, layer.in, layer.out, rows);
    if (i == 0) break;
    const Layer& below = layers_[i - 1];
    kernels_.input_gradient(parameters.data() + layer.weight, delta, delta_.data(), layer.in, layer.out, rows,
                            shape_.layer_norm ? nullptr : below.activation.data(), shape_.activation);
    if (shape_.layer_norm) {
      kernels_.layer_norm_backward(below.activation.data(), below.mean.data(), below.inverse_std.data(),
                                   parameters.data() + below.norm_weight, delta_.data(),
                                   gradient.data() + below.norm_weight, gradient.data() + below.norm_bias, below.out,
                                   rows, shape_.activation);
    }
    delta = delta_.data();
    std::swap(delta_, delta_below_);
  }
}

template class Mlp<float>;
template class Mlp<double>;

}  // namespace gipo
