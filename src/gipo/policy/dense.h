#pragma once

#include <cstddef>

namespace gipo {

enum class Activation { kNone, kTanh, kRelu };

// The dense linear algebra of a layer, behind one table so that the fastest version the processor has can be chosen at
// start. Samples are rows: x [rows, in], z and delta [rows, out]; weight [out, in] row-major.
template <class T>
struct DenseKernels {
  const char* name;  // instruction set
  // z = activation(x weight^T + bias)
  void (*affine)(const T* weight, const T* bias, const T* x, T* z, std::size_t in, std::size_t out, std::size_t rows,
                 Activation activation);
  // delta *= activation'(z), z being the activation's output
  void (*activation_backward)(const T* z, T* delta, std::size_t size, Activation activation);
  // d_weight = delta^T x, d_bias = column sums of delta
  void (*weight_gradient)(const T* delta, const T* x, T* d_weight, T* d_bias, std::size_t in, std::size_t out,
                          std::size_t rows);
  // d_x = delta weight
  void (*input_gradient)(const T* weight, const T* delta, T* d_x, std::size_t in, std::size_t out, std::size_t rows);
};

// The best for this processor; the same for the whole process. Double has the baseline alone: it serves tests.
template <class T>
const DenseKernels<T>& dense_kernels();

// Each version that this processor can run, the baseline first; for the test that compares them.
std::size_t dense_versions();
const DenseKernels<float>& dense_version(std::size_t i);

}  // namespace gipo
