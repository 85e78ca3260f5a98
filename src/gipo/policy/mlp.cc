#include "gipo/policy/mlp.h"

#include <Eigen/Core>
#include <Eigen/QR>
#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/core/random.h"

namespace gipo {
namespace {

template <class T>
using Vector = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, 1>>;
template <class T>
using ConstVector = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, 1>>;

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
      layer.normalised.resize(max_rows * layer.out);
      layer.output.resize(max_rows * layer.out);
      layer.inverse_std.resize(max_rows);
    }
    in = layer.out;
    widest = std::max(widest, layer.out);
    layers_.push_back(std::move(layer));
  }
  delta_.resize(max_rows * widest);
  delta_below_.resize(max_rows * widest);
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
    const double gain = layer.hidden ? std::sqrt(2.0) : output_gain;
    const Eigen::MatrixXd weight = gain * orthogonal(layer.out, layer.in, random);
    for (std::size_t i = 0; i < layer.out * layer.in; ++i) {
      parameters[layer.weight + i] = static_cast<T>(weight(index(i / layer.in), index(i % layer.in)));
    }
    if (layer.hidden && shape_.layer_norm) std::fill_n(parameters.begin() + index(layer.norm_weight), layer.out, T(1));
  }
}

template <class T>
const T* Mlp<T>::forward(std::span<const T> parameters, const T* x, std::size_t rows, bool changed) {
  GIPO_CHECK(parameters.size() == parameter_count_ && rows <= max_rows_);
  for (Layer& layer : layers_) {
    const T* weight = parameters.data() + layer.weight;
    if (changed) kernels_.pack(weight, layer.packed.data(), layer.in, layer.out);
    kernels_.affine(weight, layer.packed.data(), parameters.data() + layer.bias, x, layer.activation.data(), layer.in,
                    layer.out, rows, layer.hidden ? shape_.activation : Activation::kNone);
    if (layer.hidden && shape_.layer_norm) normalise_rows(layer, parameters, rows);
    x = layer_output(layer);
  }
  return x;
}

template <class T>
void Mlp<T>::normalise_rows(Layer& layer, std::span<const T> parameters, std::size_t rows) {
  const ConstVector<T> gain(parameters.data() + layer.norm_weight, index(layer.out));
  const ConstVector<T> shift(parameters.data() + layer.norm_bias, index(layer.out));
  for (std::size_t r = 0; r < rows; ++r) {
    const ConstVector<T> a(layer.activation.data() + r * layer.out, index(layer.out));
    Vector<T> normalised(layer.normalised.data() + r * layer.out, index(layer.out));
    const T mean = a.mean();
    const T variance = (a.array() - mean).square().mean();
    layer.inverse_std[r] = T(1) / std::sqrt(variance + T(kNormEpsilon));
    normalised = (a.array() - mean) * layer.inverse_std[r];
    Vector<T>(layer.output.data() + r * layer.out, index(layer.out)) =
        normalised.array() * gain.array() + shift.array();
  }
}

// Turns d (by the norm's output) into d (by its input), in place.
template <class T>
void Mlp<T>::backward_norm(const Layer& layer, std::span<const T> parameters, std::size_t rows, T* d,
                           std::span<T> gradient) {
  const ConstVector<T> gain(parameters.data() + layer.norm_weight, index(layer.out));
  Vector<T> d_gain(gradient.data() + layer.norm_weight, index(layer.out));
  Vector<T> d_shift(gradient.data() + layer.norm_bias, index(layer.out));
  d_gain.setZero();
  d_shift.setZero();
  for (std::size_t r = 0; r < rows; ++r) {
    Vector<T> g(d + r * layer.out, index(layer.out));
    const ConstVector<T> normalised(layer.normalised.data() + r * layer.out, index(layer.out));
    d_gain.array() += g.array() * normalised.array();
    d_shift += g;
    g.array() *= gain.array();
    const T mean = g.mean(), slope = g.dot(normalised) / T(layer.out);
    g.array() = (g.array() - mean - normalised.array() * slope) * layer.inverse_std[r];
  }
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
      backward_norm(below, parameters, rows, delta_.data(), gradient);
      kernels_.activation_backward(below.activation.data(), delta_.data(), rows * below.out, shape_.activation);
    }
    delta = delta_.data();
    std::swap(delta_, delta_below_);
  }
}

template class Mlp<float>;
template class Mlp<double>;

}  // namespace gipo
