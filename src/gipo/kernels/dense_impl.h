// The kernels of dense.h. Included by one file per instruction set, each of which the build compiles with its own flags
// and with Eigen's namespace renamed: no inline function of one version can be linked into another. Nothing but Eigen,
// compiler vectors and plain pointers may be used here, for the same reason.
#pragma once

#include <Eigen/Core>
#include <cmath>

#include "gipo/kernels/dense.h"
#include "gipo/kernels/dense_norm.h"
#include "gipo/kernels/dense_product.h"
#include "gipo/kernels/dense_vector.h"

namespace gipo {
namespace {

// Choices up to this many are few: several rows share a vector.
constexpr std::size_t kMostNarrow = 8;

// Four rows of four values, turned.
template <class T>
void turn_tile(const T* from, std::size_t from_row, T* to, std::size_t to_row) {
  typedef T Four __attribute__((vector_size(4 * sizeof(T))));
  Four x[4];
  for (std::size_t k = 0; k < 4; ++k) __builtin_memcpy(&x[k], from + k * from_row, sizeof x[k]);
  const Four a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5), b = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
  const Four c = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5), d = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
  x[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
  x[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
  x[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
  x[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
  for (std::size_t k = 0; k < 4; ++k) __builtin_memcpy(to + k * to_row, &x[k], sizeof x[k]);
}

// One panel after the other, each [in, its width]; in tiles of few lines of the cache.
template <class T>
void pack(const T* weight, T* packed, std::size_t in, std::size_t out) {
  if (out <= kMostDots) return;  // read as it is
  constexpr std::size_t kRun = 16;
  std::size_t width;
  for (std::size_t panel = 0; panel < out; panel += width, weight += width * in, packed += width * in) {
    width = panel_width<T>(out - panel);
    const std::size_t tiled_in = in / 4 * 4, tiled_out = width / 4 * 4;
    for (std::size_t run = 0; run < tiled_in; run += kRun) {
      const std::size_t end = run + kRun < tiled_in ? run + kRun : tiled_in;
      for (std::size_t o = 0; o < tiled_out; o += 4) {
        for (std::size_t i = run; i < end; i += 4) turn_tile(weight + o * in + i, in, packed + i * width + o, width);
      }
    }
    for (std::size_t o = 0; o < width; ++o) {
      for (std::size_t i = o < tiled_out ? tiled_in : 0; i < in; ++i) packed[i * width + o] = weight[o * in + i];
    }
  }
}

template <class T>
void affine(const T* weight, const T* packed, const T* bias, const T* x, T* z, std::size_t in, std::size_t out,
            std::size_t rows, Activation activation) {
  const Finish<T> finish{activation, nullptr, 0};
  if (out <= kMostDots) return dots(weight, bias, x, z, in, out, rows, finish);
  if (rows == 1) return row_product(x, packed, bias, z, in, out, finish);
  product<T>({rows, out, in}, {x, in, 1}, {packed, true}, {z, out, 1}, bias, finish);
}

template <class T>
void weight_gradient(const T* delta, const T* x, T* d_weight, T* d_bias, std::size_t in, std::size_t out,
                     std::size_t rows) {
  column_sums(delta, d_bias, out, rows);
  // Vectors along the inputs or along the outputs, whichever fill them better.
  if (filled<T>(in) >= filled<T>(out)) {
    product<T>({out, in, rows}, {delta, 1, out}, {x}, {d_weight, in, 1}, nullptr, {});
  } else {
    product<T>({in, out, rows}, {x, 1, in}, {delta}, {d_weight, 1, in}, nullptr, {});
  }
}

template <class T>
void input_gradient(const T* weight, const T* delta, T* d_x, std::size_t in, std::size_t out, std::size_t rows,
                    const T* below, Activation activation) {
  const Finish<T> finish{below ? activation : Activation::kNone, below, in};
  product<T>({rows, in, out}, {delta, out, 1}, {weight}, {d_x, in, 1}, nullptr, finish);
}

// One row of many choices: vectors along the choices.
template <class T>
T softmax_row(const T* logits, T* p, T* log_p, std::size_t n) {
  const T top = largest(logits, n);
  const T sum = exponentials(logits, top, p, n), log_sum = std::log(sum), inverse = T(1) / sum;
  Vec<T> entropies{};
  std::size_t k = 0;
  for (; k + kLanes<T> <= n; k += kLanes<T>) {
    const Vec<T> l = load(logits + k) - top - log_sum, q = load(p + k) * inverse;
    store(log_p + k, l);
    store(p + k, q);
    entropies += q * l;
  }
  T entropy = -total<T>(entropies);
  for (; k < n; ++k) {
    log_p[k] = logits[k] - top - log_sum;
    p[k] *= inverse;
    entropy -= p[k] * log_p[k];
  }
  return entropy;
}

// A vector's worth of rows of few choices: vectors along the rows.
template <class T>
void softmax_rows(const T* logits, std::size_t rows, std::size_t n, std::size_t stride, T* p, T* log_p, T* entropy,
                  std::size_t entropy_stride) {
  Vec<T> x[kMostNarrow], top;
  for (std::size_t k = 0; k < n; ++k) {
    x[k] = load_some(logits + k, rows, stride);
    top = k == 0 ? x[0] : (x[k] > top ? x[k] : top);
  }
  Vec<T> e[kMostNarrow], sum{}, entropies{};
  for (std::size_t k = 0; k < n; ++k) {
    e[k] = exp_of(x[k] - top);
    sum += e[k];
  }
  const Vec<T> log_sum = log_of(sum);
  for (std::size_t k = 0; k < n; ++k) {
    const Vec<T> l = x[k] - top - log_sum, q = e[k] / sum;
    entropies -= q * l;
    store_some(log_p + k, l, rows, stride);
    store_some(p + k, q, rows, stride);
  }
  store_some(entropy, entropies, rows, entropy_stride);
}

template <class T>
void softmax(const T* logits, std::size_t rows, std::size_t n, std::size_t stride, T* p, T* log_p, T* entropy,
             std::size_t entropy_stride) {
  if (n > kMostNarrow) {
    for (std::size_t r = 0; r < rows; ++r) {
      entropy[r * entropy_stride] = softmax_row(logits + r * stride, p + r * stride, log_p + r * stride, n);
    }
    return;
  }
  for (std::size_t r = 0; r < rows; r += kLanes<T>) {
    const std::size_t some = rows - r < kLanes<T> ? rows - r : kLanes<T>, at = r * stride;
    softmax_rows(logits + at, some, n, stride, p + at, log_p + at, entropy + r * entropy_stride, entropy_stride);
  }
}

template <class T>
void scale(const float* rows, std::size_t count, std::size_t width, const float* mean, const float* factor, float limit,
           T* __restrict out) {
  for (std::size_t r = 0; r < count; ++r, rows += width, out += width) {
    for (std::size_t d = 0; d < width; ++d) {
      float v = (rows[d] - mean[d]) * factor[d];
      v = v > limit ? limit : v;
      out[d] = static_cast<T>(v < -limit ? -limit : v);
    }
  }
}

template <class T>
void softmax_gradient(const T* p, const T* log_p, const T* other_p, std::size_t n, const SoftmaxLoss<T>& loss,
                      T* __restrict d_logits) {
  for (std::size_t k = 0; k < n; ++k) {
    d_logits[k] = p[k] * (loss.entropy_coef * (log_p[k] + loss.entropy) - loss.d_log_prob);
  }
  for (std::size_t k = 0; other_p && k < n; ++k) d_logits[k] += loss.kl_coef * (p[k] - other_p[k]);
}

// One column, or a register's worth of them, down all rows; four sums at once, which need not wait for each other.
template <class V, class Load>
void column_moments(std::size_t count, V center, Load&& load_row, V& sum, V& square) {
  V sums[4] = {}, squares[4] = {};
  const auto add = [&](std::size_t r, std::size_t k) {
    const V distance = load_row(r) - center;
    sums[k] += distance;
    squares[k] += distance * distance;
  };
  std::size_t r = 0;
  for (; r + 4 <= count; r += 4) {
    for (std::size_t k = 0; k < 4; ++k) add(r + k, k);
  }
  for (; r < count; ++r) add(r, 0);
  sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  square = (squares[0] + squares[1]) + (squares[2] + squares[3]);
}

void moments(const float* rows, std::size_t count, std::size_t width, const double* from, double* sum, double* square) {
  typedef float Half __attribute__((vector_size(kVectorBytes / 2)));
  std::size_t d = 0;
  for (; d + kLanes<double> <= width; d += kLanes<double>) {
    Vec<double> s, q;
    const auto some_columns = [&](std::size_t r) {
      Half values;
      __builtin_memcpy(&values, rows + r * width + d, sizeof values);
      return __builtin_convertvector(values, Vec<double>);
    };
    column_moments(count, load(from + d), some_columns, s, q);
    store(sum + d, s);
    store(square + d, q);
  }
  for (; d < width; ++d) {
    const auto column = [&](std::size_t r) { return static_cast<double>(rows[r * width + d]); };
    column_moments(count, from[d], column, sum[d], square[d]);
  }
}

template <class T>
void eigen_product(const T* a, const T* b, T* c, std::size_t n) {
  using Square = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
  const auto size = static_cast<Eigen::Index>(n);
  Eigen::Map<Square>(c, size, size).noalias() =
      Eigen::Map<const Square>(a, size, size) * Eigen::Map<const Square>(b, size, size);
}

template <class T>
double sum_of_squares(const T* values, std::size_t size) {
  constexpr std::size_t kSums = 32;  // enough that none waits for its own last addition
  double sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= size; i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k)
      sums[k] += static_cast<double>(values[i + k]) * static_cast<double>(values[i + k]);
  }
  for (; i < size; ++i) sums[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

template <class T>
void adamw(const AdamWStep<T>& s, const T* __restrict gradient, T* __restrict parameters, T* __restrict first,
           T* __restrict second, std::size_t size) {
  std::size_t i = 0;
  for (; i + kLanes<T> <= size; i += kLanes<T>) {
    const Vec<T> g = load(gradient + i) * s.scale;
    const Vec<T> m = s.beta1 * load(first + i) + (T(1) - s.beta1) * g;
    const Vec<T> v = s.beta2 * load(second + i) + (T(1) - s.beta2) * g * g;
    store(first + i, m);
    store(second + i, v);
    store(parameters + i,
          s.keep * load(parameters + i) - s.rate * quotient(m, root_of(v * s.second_scale) + s.epsilon));
  }
  for (; i < size; ++i) {
    adamw_step(s, gradient[i], parameters[i], first[i], second[i]);
  }
}

template <class T>
constexpr DenseKernels<T> table(const char* name) {
  return {name,
          pack<T>,
          affine<T>,
          weight_gradient<T>,
          input_gradient<T>,
          layer_norm<T>,
          layer_norm_backward<T>,
          softmax<T>,
          softmax_gradient<T>,
          scale<T>,
          moments,
          eigen_product<T>,
          sum_of_squares<T>,
          adamw<T>};
}

}  // namespace
}  // namespace gipo
