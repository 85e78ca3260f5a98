#include "gipo/policy/mlp.h"

#include <Eigen/Core>
#include <Eigen/QR>
#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/core/random.h"

namespace gipo {
namespace {

constexpr double kNormEpsilon = 1e-5;

// A buffer [rows, width] row-major is a matrix [width, rows] in Eigen's own order: a sample is a column.
template <class T>
using Samples = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>>;
template <class T>
using ConstSamples = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>>;
template <class T>
using Weight = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
template <class T>
using ConstWeight = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
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
Mlp<T>::Mlp(const MlpShape& shape, std::size_t max_rows) : shape_(shape), max_rows_(max_rows) {
  std::size_t in = shape.input, widest = shape.output;
  for (std::size_t i = 0; i <= shape.hidden.size(); ++i) {
    Layer layer;
    layer.hidden = i < shape.hidden.size();
    layer.in = in;
    layer.out = layer.hidden ? static_cast<std::size_t>(shape.hidden[i]) : shape.output;
    layer.weight = parameter_count_;
    layer.bias = layer.weight + layer.in * layer.out;
    parameter_count_ = layer.bias + layer.out;
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
    Weight<T>(parameters.data() + layer.weight, index(layer.out), index(layer.in)) =
        (gain * orthogonal(layer.out, layer.in, random)).template cast<T>();
    if (layer.hidden && shape_.layer_norm) std::fill_n(parameters.begin() + index(layer.norm_weight), layer.out, T(1));
  }
}

template <class T>
const T* Mlp<T>::forward(std::span<const T> parameters, const T* x, std::size_t rows) {
  GIPO_CHECK(parameters.size() == parameter_count_ && rows <= max_rows_);
  for (Layer& layer : layers_) {
    const ConstSamples<T> below(x, index(layer.in), index(rows));
    const ConstWeight<T> weight(parameters.data() + layer.weight, index(layer.out), index(layer.in));
    const ConstVector<T> bias(parameters.data() + layer.bias, index(layer.out));
    Samples<T> z(layer.activation.data(), index(layer.out), index(rows));
    z.noalias() = weight * below;
    if (!layer.hidden) {
      z.colwise() += bias;
    } else if (shape_.activation == Activation::kTanh) {
      z.array() = (z.colwise() + bias).array().tanh();
    } else {
      z.array() = (z.colwise() + bias).array().max(T(0));
    }
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
  Samples<T> delta(d, index(layer.out), index(rows));
  const ConstSamples<T> normalised(layer.normalised.data(), index(layer.out), index(rows));
  const ConstVector<T> gain(parameters.data() + layer.norm_weight, index(layer.out));
  Vector<T>(gradient.data() + layer.norm_weight, index(layer.out)) =
      (delta.array() * normalised.array()).rowwise().sum();
  Vector<T>(gradient.data() + layer.norm_bias, index(layer.out)) = delta.rowwise().sum();
  for (Eigen::Index r = 0; r < index(rows); ++r) {
    auto g = delta.col(r);
    g.array() *= gain.array();
    const T mean = g.mean(), slope = g.dot(normalised.col(r)) / T(layer.out);
    g.array() = (g.array() - mean - normalised.col(r).array() * slope) * layer.inverse_std[static_cast<std::size_t>(r)];
  }
}

template <class T>
void Mlp<T>::backward(std::span<const T> parameters, const T* x, std::size_t rows, const T* d_output,
                      std::span<T> gradient) {
  GIPO_CHECK(gradient.size() == parameter_count_ && rows <= max_rows_);
  std::copy_n(d_output, rows * shape_.output, delta_.data());
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const Layer& layer = layers_[i];
    Samples<T> delta(delta_.data(), index(layer.out), index(rows));
    if (layer.hidden) {
      if (shape_.layer_norm) backward_norm(layer, parameters, rows, delta_.data(), gradient);
      const ConstSamples<T> a(layer.activation.data(), index(layer.out), index(rows));
      if (shape_.activation == Activation::kTanh) {
        delta.array() *= T(1) - a.array().square();
      } else {
        delta.array() *= (a.array() > T(0)).template cast<T>();
      }
    }
    const ConstSamples<T> below(i == 0 ? x : layer_output(layers_[i - 1]), index(layer.in), index(rows));
    Weight<T>(gradient.data() + layer.weight, index(layer.out), index(layer.in)).noalias() = delta * below.transpose();
    Vector<T>(gradient.data() + layer.bias, index(layer.out)) = delta.rowwise().sum();
    if (i == 0) break;
    const ConstWeight<T> weight(parameters.data() + layer.weight, index(layer.out), index(layer.in));
    Samples<T>(delta_below_.data(), index(layer.in), index(rows)).noalias() = weight.transpose() * delta;
    std::swap(delta_, delta_below_);
  }
}

template class Mlp<float>;
template class Mlp<double>;

}  // namespace gipo
