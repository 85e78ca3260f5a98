// Vectors as wide as the instruction set's registers, through the compiler's own vector types, and the functions of them
// that the kernels need. Part of dense_impl.h; see there for what may be used here.
#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cmath>
#include <cstddef>
#include <utility>

namespace gipo {
namespace {

#if defined(__AVX512F__)
constexpr std::size_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr std::size_t kVectorBytes = 32;
#else
constexpr std::size_t kVectorBytes = 16;
#endif

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vec = typename VectorOf<T>::type;
template <class T>
constexpr std::size_t kLanes = kVectorBytes / sizeof(T);

template <class T>
inline Vec<T> load(const T* p) {
  Vec<T> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
inline void store(T* p, const Vec<T>& v) {
  __builtin_memcpy(p, &v, sizeof v);
}
template <class T>
inline Vec<T> splat(T x) {
  return x - Vec<T>{};
}

// Part of a vector, through the stack.
template <class T>
inline Vec<T> load_some(const T* p, std::size_t n, std::size_t stride = 1) {
  Vec<T> v{};
  for (std::size_t i = 0; i < n; ++i) v[i] = p[i * stride];
  return v;
}
template <class T>
inline void store_some(T* p, const Vec<T>& v, std::size_t n, std::size_t stride = 1) {
  for (std::size_t i = 0; i < n; ++i) p[i * stride] = v[i];
}

// The sum of N lanes, halves added to halves.
template <class T, std::size_t N, class V, std::size_t... Lane>
inline T total_of(const V& v, std::index_sequence<Lane...>) {
  if constexpr (N == 2) {
    return v[0] + v[1];
  } else {
    const auto sum = __builtin_shufflevector(v, v, Lane...) + __builtin_shufflevector(v, v, (Lane + N / 2)...);
    return total_of<T, N / 2>(sum, std::make_index_sequence<N / 4>());
  }
}
template <class T>
inline T total(const Vec<T>& v) {
  return total_of<T, kLanes<T>>(v, std::make_index_sequence<kLanes<T> / 2>());
}

// One lane for the sum of each of N vectors; in the order of total_of, so that the bits are the same.
template <class T, std::size_t N, std::size_t... Lane>
inline Vec<T> totals_of(Vec<T>* v, std::index_sequence<Lane...> lanes) {
  if constexpr (N == 1) {
    return v[0];
  } else {
    // Lanes of v[i] and of v[i + N / 2] in turns of N / 2: the first halves of both, and the second.
    constexpr auto kFrom = [](std::size_t lane, std::size_t half) {
      const std::size_t run = lane / (N / 2) % 2, group = lane / N;
      return static_cast<int>(run * kLanes<T> + group * N + half * (N / 2) + lane % (N / 2));
    };
    for (std::size_t i = 0; i < N / 2; ++i) {
      v[i] = __builtin_shufflevector(v[i], v[i + N / 2], kFrom(Lane, 0)...) +
             __builtin_shufflevector(v[i], v[i + N / 2], kFrom(Lane, 1)...);
    }
    return totals_of<T, N / 2>(v, lanes);
  }
}
template <class T>
inline Vec<T> totals(Vec<T>* v) {
  return totals_of<T, kLanes<T>>(v, std::make_index_sequence<kLanes<T>>());
}

// a / b, for b of ordinary size. With AVX-512 an estimate of 14 bits and one step of Newton's take a third of the time
// that a division does.
inline Vec<float> quotient(Vec<float> a, Vec<float> b) {
#if defined(__AVX512F__)
  const Vec<float> inverse = (Vec<float>)_mm512_rcp14_ps((__m512)b), q = a * inverse;
  return q + inverse * (a - b * q);
#else
  return a / b;
#endif
}

inline Vec<double> quotient(Vec<double> a, Vec<double> b) { return a / b; }

// The square root of x >= 0, the same way.
inline Vec<float> root_of(Vec<float> x) {
#if defined(__AVX512F__)
  x += 1e-30f;  // zero has no inverse root; far above what the processor is slow with
  const Vec<float> inverse = (Vec<float>)_mm512_rsqrt14_ps((__m512)x), root = x * inverse;
  return root + 0.5f * inverse * (x - root * root);
#else
  for (std::size_t i = 0; i < kLanes<float>; ++i) x[i] = std::sqrt(x[i]);
  return x;
#endif
}
inline Vec<double> root_of(Vec<double> x) {
  for (std::size_t i = 0; i < kLanes<double>; ++i) x[i] = std::sqrt(x[i]);
  return x;
}

// f(0), f(1), ... f(N - 1), unrolled: what is kept in arrays stays in registers.
template <std::size_t N, class F>
[[gnu::always_inline]] inline void unrolled(F&& f) {
  static_assert(N <= 8);
#pragma GCC unroll 8
  for (std::size_t i = 0; i < N; ++i) f(i);
}

// x = tanh(x) as x P(x^2) / Q(x^2), fitted over |x| <= 7.9 and constant beyond; the error is below 4e-7, and |tanh| below
// 1. All N vectors take each step together, and the polynomials are split in halves: no step waits for the last one.
template <std::size_t N>
[[gnu::always_inline]] inline void tanh_of(Vec<float> (&x)[N]) {
  Vec<float> u[N], u2[N], p[N], q[N], low[N];
  unrolled<N>([&](std::size_t i) {
    const Vec<float> limit = splat(7.9f);
#if defined(__AVX512F__)
    x[i] = (Vec<float>)_mm512_max_ps((__m512)-limit,
                                     _mm512_min_ps((__m512)limit, (__m512)x[i]));  // in this order NaN stays NaN
#elif defined(__aarch64__)
    x[i] = vmaxq_f32(-limit, vminq_f32(limit, x[i]));
#else
    x[i] = x[i] > limit ? limit : x[i];
    x[i] = x[i] < -limit ? -limit : x[i];
#endif
  });
  unrolled<N>([&](std::size_t i) { u[i] = x[i] * x[i]; });
  unrolled<N>([&](std::size_t i) { u2[i] = u[i] * u[i]; });
  unrolled<N>([&](std::size_t i) { p[i] = u[i] * 2.4105059961976316e-11f - 1.4906262890690414e-08f; });
  unrolled<N>([&](std::size_t i) { low[i] = u[i] * 9.939211849996354e-06f + 0.002992101013660431f; });
  unrolled<N>([&](std::size_t i) { p[i] = p[i] * u2[i] + low[i]; });
  unrolled<N>([&](std::size_t i) { low[i] = u[i] * 0.1298491358757019f + 1.0f; });
  unrolled<N>([&](std::size_t i) { p[i] = p[i] * u2[i] + low[i]; });
  unrolled<N>([&](std::size_t i) { q[i] = u[i] * 0.00023808731930330396f + 0.024053111672401428f; });
  unrolled<N>([&](std::size_t i) { low[i] = u[i] * 0.46318233013153076f + 1.0f; });
  unrolled<N>([&](std::size_t i) { q[i] = q[i] * u2[i] + low[i]; });
  unrolled<N>([&](std::size_t i) { x[i] = quotient(x[i] * p[i], q[i]); });
}
template <std::size_t N>
inline void tanh_of(Vec<double> (&x)[N]) {
  unrolled<N>([&](std::size_t k) {
    Vec<double> y{};
    for (std::size_t i = 0; i < kLanes<double>; ++i) y[i] = std::tanh(x[k][i]);
    x[k] = y;
  });
}

// exp, for x <= 0: 2^n times a polynomial of the rest; the relative error is below 2e-7. Below -87 it is about 1e-38.
inline Vec<float> exp_of(Vec<float> x) {
  typedef int Ints __attribute__((vector_size(kVectorBytes)));
  const Vec<float> low = splat(-87.0f);
  x = x < low ? low : x;
  const Vec<float> shifter = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  const Vec<float> shifted = x * 1.44269504f + shifter;
  const Vec<float> n = shifted - shifter;
  const Vec<float> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vec<float> p = r * (1.0f / 720) + (1.0f / 120);
  p = p * r + (1.0f / 24);
  p = p * r + (1.0f / 6);
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Ints scale = (__builtin_convertvector(n, Ints) + 127) << 23;
  return p * (Vec<float>)scale;  // the bits, not the value
}
inline Vec<double> exp_of(Vec<double> x) {
  for (std::size_t i = 0; i < kLanes<double>; ++i) x[i] = std::exp(x[i]);
  return x;
}

// log, for x >= 1: the exponent, and a series of the mantissa around 1; the error is below 2e-7.
inline Vec<float> log_of(Vec<float> x) {
  typedef int Ints __attribute__((vector_size(kVectorBytes)));
  Ints bits = (Ints)x;
  const Ints exponent = (bits - 0x3f3504f3) >> 23;  // so that the mantissa lies between sqrt(1/2) and sqrt(2)
  bits -= exponent << 23;
  const Vec<float> m = (Vec<float>)bits - 1.0f, s = m / (m + 2.0f), u = s * s;  // log(1 + m) = 2 atanh(s)
  Vec<float> p = u * (2.0f / 9) + (2.0f / 7);
  p = p * u + (2.0f / 5);
  p = p * u + (2.0f / 3);
  p = p * u + 2.0f;
  return __builtin_convertvector(exponent, Vec<float>) * 0.69314718f + p * s;
}
inline Vec<double> log_of(Vec<double> x) {
  for (std::size_t i = 0; i < kLanes<double>; ++i) x[i] = std::log(x[i]);
  return x;
}

template <class T>
T largest(const T* x, std::size_t n) {
  T top = x[0];
  std::size_t i = 0;
  if (n >= kLanes<T>) {
    Vec<T> tops = load(x);
    for (i = kLanes<T>; i + kLanes<T> <= n; i += kLanes<T>) tops = load(x + i) > tops ? load(x + i) : tops;
    for (std::size_t k = 0; k < kLanes<T>; ++k) top = tops[k] > top ? tops[k] : top;
  }
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

// out [n] = exp(x - top), top being the largest; returns the sum.
template <class T>
T exponentials(const T* x, T top, T* out, std::size_t n) {
  T sum = 0;
  std::size_t i = 0;
  if (n >= kLanes<T>) {
    Vec<T> sums{};
    for (; i + kLanes<T> <= n; i += kLanes<T>) {
      const Vec<T> e = exp_of(load(x + i) - top);
      store(out + i, e);
      sums += e;
    }
    sum = total<T>(sums);
  }
  for (; i < n; ++i) {
    out[i] = std::exp(x[i] - top);
    sum += out[i];
  }
  return sum;
}

// Registers: a block of kRows x (kVectors vectors) sums, the vectors of one row of b, and one broadcast value.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr std::size_t kRows = 6, kVectors = 4;  // of 32 registers
#else
constexpr std::size_t kRows = 6, kVectors = 2;  // of 16
#endif
template <class T>
constexpr std::size_t kWidth = kVectors* kLanes<T>;  // columns of a block

}  // namespace
}  // namespace gipo
