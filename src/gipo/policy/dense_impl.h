// The kernels of dense.h over Eigen. Included by one file per instruction set, each of which the build compiles with
// its own flags and with Eigen's namespace renamed: no inline function of one version can be linked into another.
// Nothing but Eigen and plain pointers may be used here, for the same reason.
#pragma once

#include <Eigen/Core>

#include "gipo/policy/dense.h"

namespace gipo {
namespace {

// [rows, width] row-major is [width, rows] in Eigen's own order: a sample is a column.
template <class T>
using Samples = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>>;
template <class T>
using ConstSamples = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>>;
template <class T>
using Weight = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
template <class T>
using ConstWeight = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
template <class T>
using Column = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, 1>>;
template <class T>
using ConstColumn = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, 1>>;

Eigen::Index dim(std::size_t i) { return static_cast<Eigen::Index>(i); }

template <class T>
void affine(const T* weight, const T* bias, const T* x, T* z, std::size_t in, std::size_t out, std::size_t rows,
            Activation activation) {
  Samples<T> result(z, dim(out), dim(rows));
  result.noalias() = ConstWeight<T>(weight, dim(out), dim(in)) * ConstSamples<T>(x, dim(in), dim(rows));
  // Two passes: Eigen vectorises the activation only over a plain array.
  result.colwise() += ConstColumn<T>(bias, dim(out));
  Column<T> flat(z, dim(out * rows));
  if (activation == Activation::kTanh) flat.array() = flat.array().tanh();
  if (activation == Activation::kRelu) flat.array() = flat.array().max(T(0));
}

template <class T>
void activation_backward(const T* z, T* delta, std::size_t size, Activation activation) {
  const ConstColumn<T> a(z, dim(size));
  Column<T> d(delta, dim(size));
  if (activation == Activation::kTanh) d.array() *= T(1) - a.array().square();
  if (activation == Activation::kRelu) d.array() = (a.array() > T(0)).select(d.array(), T(0));
}

template <class T>
void weight_gradient(const T* delta, const T* x, T* d_weight, T* d_bias, std::size_t in, std::size_t out,
                     std::size_t rows) {
  const ConstSamples<T> d(delta, dim(out), dim(rows));
  Weight<T>(d_weight, dim(out), dim(in)).noalias() = d * ConstSamples<T>(x, dim(in), dim(rows)).transpose();
  Column<T> sum(d_bias, dim(out));
  sum.setZero();
  for (Eigen::Index r = 0; r < dim(rows); ++r) sum += d.col(r);
}

template <class T>
void input_gradient(const T* weight, const T* delta, T* d_x, std::size_t in, std::size_t out, std::size_t rows) {
  Samples<T>(d_x, dim(in), dim(rows)).noalias() =
      ConstWeight<T>(weight, dim(out), dim(in)).transpose() * ConstSamples<T>(delta, dim(out), dim(rows));
}

template <class T>
constexpr DenseKernels<T> table(const char* name) {
  return {name, affine<T>, activation_backward<T>, weight_gradient<T>, input_gradient<T>};
}

}  // namespace
}  // namespace gipo
