#pragma once

#include <cstddef>

#include "gipo/kernels/adamw_terms.h"

namespace gipo {

enum class Activation { kNone, kTanh, kRelu };

inline constexpr double kNormEpsilon = 1e-5;  // LayerNorm: added to the variance

// What the loss says of one categorical choice.
template <class T>
struct SoftmaxLoss {
  T d_log_prob;             // by the log-probability of the action taken; added to its logit by the caller
  T entropy_coef, entropy;  // weight of -entropy; the entropy
  T kl_coef;                // weight of KL(other || p)
};

// The dense linear algebra of a layer and the passes over flat buffers, behind one table so that the fastest version the
// processor has can be chosen at start. Samples are rows: x [rows, in], z and delta [rows, out]; weight [out, in]
// row-major. Fastest where buffers are aligned to 64 bytes.
template <class T>
struct DenseKernels {
  const char* name;  // instruction set
  // The weight [out, in] as affine reads it, packed [in * out]; anew whenever it has changed.
  void (*pack)(const T* weight, T* packed, std::size_t in, std::size_t out);
  // z = activation(x weight^T + bias)
  void (*affine)(const T* weight, const T* packed, const T* bias, const T* x, T* z, std::size_t in, std::size_t out,
                 std::size_t rows, Activation activation);
  // d_weight = delta^T x, d_bias = column sums of delta
  void (*weight_gradient)(const T* delta, const T* x, T* d_weight, T* d_bias, std::size_t in, std::size_t out,
                          std::size_t rows);
  // d_x = delta weight; where `below` [rows, in] is given, the activation's output, times its derivative there
  void (*input_gradient)(const T* weight, const T* delta, T* d_x, std::size_t in, std::size_t out, std::size_t rows,
                         const T* below, Activation activation);
  // LayerNorm of x [rows, width]: z = (x - mean) inverse_std gain + shift; mean and inverse_std [rows] are kept.
  void (*layer_norm)(const T* x, const T* gain, const T* shift, T* z, T* mean, T* inverse_std, std::size_t width,
                     std::size_t rows);
  // delta, by z, becomes that by what the activation saw that gave x, in place; d_gain, d_shift [width].
  void (*layer_norm_backward)(const T* x, const T* mean, const T* inverse_std, const T* gain, T* delta, T* d_gain,
                              T* d_shift, std::size_t width, std::size_t rows, Activation activation);
  // For each of `rows` rows, `stride` apart: p = softmax(logits) [n], its logarithm, and its entropy, `entropy_stride`
  // apart. log_p may be where the logits are.
  void (*softmax)(const T* logits, std::size_t rows, std::size_t n, std::size_t stride, T* p, T* log_p, T* entropy,
                  std::size_t entropy_stride);
  // d_logits [n]; other_p may be null.
  void (*softmax_gradient)(const T* p, const T* log_p, const T* other_p, std::size_t n, const SoftmaxLoss<T>& loss,
                           T* d_logits);
  // out [count, width] = (rows - mean) * factor, within +-limit
  void (*scale)(const float* rows, std::size_t count, std::size_t width, const float* mean, const float* factor,
                float limit, T* out);
  // sum [width] and square [width]: over rows [count, width], of the distance from `from` [width] and of its square.
  void (*moments)(const float* rows, std::size_t count, std::size_t width, const double* from, double* sum,
                  double* square);
  // c = a b, all [n, n], as Eigen computes it: what benchmarks measure a core by.
  void (*eigen_product)(const T* a, const T* b, T* c, std::size_t n);
  double (*sum_of_squares)(const T* values, std::size_t size);
  void (*adamw)(const AdamWStep<T>& step, const T* gradient, T* parameters, T* first, T* second, std::size_t size);
};

// The best for this processor; the same for the whole process. Double has the baseline alone: it serves tests.
template <class T>
const DenseKernels<T>& dense_kernels();

// Each version that this processor can run, the baseline first; for the test that compares them.
std::size_t dense_versions();
const DenseKernels<float>& dense_version(std::size_t i);

}  // namespace gipo
