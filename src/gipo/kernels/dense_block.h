// Blocks of a product whose sums stay in registers. Part of dense_impl.h; see there for what may be used here.
#pragma once

#include "gipo/kernels/dense.h"
#include "gipo/kernels/dense_finish.h"
#include "gipo/kernels/dense_vector.h"
#if defined(__aarch64__)
#include "gipo/kernels/dense_neon.h"
#endif

namespace gipo {
namespace {

// Element (i, k) stands at data[i * row + k * column].
template <class T>
struct Strided {
  T* data;
  std::size_t row, column;
};

// Where a block of sums begins and how it ends: one step of the inner sum's chunks.
template <class T>
struct Block {
  const T* a;                   // (0, 0) of the block's rows
  std::size_t a_row, a_column;  // strides
  const T* b;                   // [depth, columns]
  std::size_t b_row, depth;
  Strided<T> c;
  std::size_t columns;  // lanes in use; fewer than a vector only where the block is one vector wide
  const T* bias;        // first chunk
  bool first, last;
  Finish<T> finish;  // last chunk; its output moved to this block
};

// f(r, v) for every vector of a block, unrolled.
template <std::size_t Rows, std::size_t Vectors, class F>
[[gnu::always_inline]] inline void for_each_vector(F&& f) {
  unrolled<Rows>([&](std::size_t r) __attribute__((always_inline)) {
    unrolled<Vectors>([&](std::size_t v) __attribute__((always_inline)) { f(r, v); });
  });
}

template <class T, std::size_t Rows, std::size_t Vectors>
using Sums = Vec<T>[Rows][Vectors];

// Vector v's lanes in use.
template <class T>
std::size_t lanes_of(const Block<T>& k, std::size_t v) {
  const std::size_t left = k.columns - v * kLanes<T>;
  return left < kLanes<T> ? left : kLanes<T>;
}

// sum = zero, the bias, or what the chunk before has left.
template <class T, std::size_t Rows, std::size_t Vectors>
[[gnu::always_inline]] inline void begin_sums(const Block<T>& k, bool whole, Sums<T, Rows, Vectors>& sum) {
  if (k.first && !k.bias) {
    for_each_vector<Rows, Vectors>([&](std::size_t r, std::size_t v) { sum[r][v] = Vec<T>{}; });
    return;
  }
  const T* from = k.first ? k.bias : k.c.data;
  const std::size_t row = k.first ? 0 : k.c.row, column = k.first ? 1 : k.c.column;
  if (whole) {
    for_each_vector<Rows, Vectors>(
        [&](std::size_t r, std::size_t v) { sum[r][v] = load(from + r * row + v * kLanes<T>); });
    return;
  }
  Sums<T, Rows, Vectors> some;  // in memory, so that those that count need not be
  for (std::size_t r = 0; r < Rows; ++r) {
    for (std::size_t v = 0; v < Vectors; ++v) {
      some[r][v] = load_some(from + r * row + v * kLanes<T> * column, lanes_of(k, v), column);
    }
  }
  for_each_vector<Rows, Vectors>([&](std::size_t r, std::size_t v) { sum[r][v] = some[r][v]; });
}

template <class T, std::size_t Rows, std::size_t Vectors>
[[gnu::always_inline]] inline void end_sums(const Block<T>& k, bool whole, const Sums<T, Rows, Vectors>& sum) {
  if (whole) {
    for_each_vector<Rows, Vectors>(
        [&](std::size_t r, std::size_t v) { store(k.c.data + r * k.c.row + v * kLanes<T>, sum[r][v]); });
    return;
  }
  Sums<T, Rows, Vectors> some;
  for_each_vector<Rows, Vectors>([&](std::size_t r, std::size_t v) { some[r][v] = sum[r][v]; });
  for (std::size_t r = 0; r < Rows; ++r) {
    for (std::size_t v = 0; v < Vectors; ++v) {
      store_some(k.c.data + r * k.c.row + v * kLanes<T> * k.c.column, some[r][v], lanes_of(k, v), k.c.column);
    }
  }
}

// sum = finish(sum), but for tanh, which needs the registers; returns whether it is done.
template <class T, std::size_t Rows, std::size_t Vectors>
[[gnu::always_inline]] inline bool finish_sums(const Finish<T>& f, Sums<T, Rows, Vectors>& sum) {
  const auto output = [&](std::size_t r, std::size_t v) { return load(f.output + r * f.stride + v * kLanes<T>); };
  if (f.output && f.activation == Activation::kTanh) {
    for_each_vector<Rows, Vectors>(
        [&](std::size_t r, std::size_t v) { sum[r][v] = times_tanh_slope<T>(sum[r][v], output(r, v)); });
  } else if (f.output && f.activation == Activation::kRelu) {
    for_each_vector<Rows, Vectors>(
        [&](std::size_t r, std::size_t v) { sum[r][v] = times_relu_slope<T>(sum[r][v], output(r, v)); });
  } else if (f.activation == Activation::kRelu) {
    for_each_vector<Rows, Vectors>([&](std::size_t r, std::size_t v) { sum[r][v] = relu_of<T>(sum[r][v]); });
  } else {
    return f.activation == Activation::kNone;
  }
  return true;
}

#if defined(__aarch64__)
// Products with one lane of a vector need no broadcast: four steps of a row of a at once. Adds the first steps, in the same
// order as the loop that adds the rest; returns how many.
template <std::size_t Rows>
[[gnu::always_inline]] inline std::size_t add_by_lanes(const Block<float>& k, Sums<float, Rows, kVectors>& sum) {
  const float *a = k.a, *b = k.b;
  std::size_t d = 0;
  for (; k.a_column == 1 && d + 4 <= k.depth; d += 4, a += 4) {
    float32x4_t x[Rows];
    unrolled<Rows>([&](std::size_t r) { x[r] = vld1q_f32(a + r * k.a_row); });
    const auto step = [&]<int Lane>() __attribute__((always_inline)) {
      unrolled<kVectors>([&](std::size_t v) {
        const float32x4_t row = vld1q_f32(b + 4 * v);
        unrolled<Rows>([&](std::size_t r) { sum[r][v] = vfmaq_laneq_f32(sum[r][v], row, x[r], Lane); });
      });
      b += k.b_row;
    };
    step.template operator()<0>();
    step.template operator()<1>();
    step.template operator()<2>();
    step.template operator()<3>();
  }
  return d;
}
#endif

// c = finish(start + a b) for one block.
template <class T, std::size_t Rows, std::size_t Vectors>
[[gnu::always_inline]] inline void run_block(const Block<T>& k, bool whole) {
  Sums<T, Rows, Vectors> sum;
  begin_sums<T, Rows, Vectors>(k, whole, sum);
  std::size_t d = 0;
#if defined(__aarch64__)
  if constexpr (Rows > 2 && Rows < kRows && Vectors == kVectors && sizeof(T) == sizeof(float)) {
    d = add_by_lanes<Rows>(k, sum);
  }
#endif
  const T* a = k.a + d * k.a_column;
  const T* b = k.b + d * k.b_row;
  const auto add_step = [&](Sums<T, Rows, Vectors> & to) __attribute__((always_inline)) {
    Vec<T> row[Vectors];
    for (std::size_t v = 0; v < Vectors; ++v) row[v] = load(b + v * kLanes<T>);
    for (std::size_t r = 0; r < Rows; ++r) {
      const Vec<T> x = splat(a[r * k.a_row]);
      for (std::size_t v = 0; v < Vectors; ++v) to[r][v] += x * row[v];
    }
    a += k.a_column, b += k.b_row;
  };
  if constexpr (Rows * Vectors <= 8) {  // so few sums wait for their own last addition: two of each
    Sums<T, Rows, Vectors> odd = {};
    for (; d + 2 <= k.depth; d += 2) {
      add_step(sum);
      add_step(odd);
    }
    for_each_vector<Rows, Vectors>([&](std::size_t r, std::size_t v) { sum[r][v] += odd[r][v]; });
  }
  for (; d < k.depth; ++d) add_step(sum);
  const bool finished = !k.last || (whole && finish_sums<T, Rows, Vectors>(k.finish, sum));
  end_sums<T, Rows, Vectors>(k, whole, sum);
  if (!finished) finish_rows<T>(k.c.data, k.c.row, Rows, k.columns, k.finish);
}

#if defined(__aarch64__)
// The blocks of run_blocks in assembly, where the values of a that it takes at once are side by side; else returns false.
inline bool run_blocks_neon(const Block<float>& first, std::size_t count, std::size_t a_step) {
  const bool by_rows = first.a_column == 1, whole = first.c.column == 1;
  const std::size_t steps = by_rows ? first.depth / 4 * 4 : first.depth;
  if (first.columns != kWidth<float> || steps == 0 || !(by_rows || first.a_row == 1)) return false;
  static constexpr float kZeros[kWidth<float>] = {};
  alignas(kVectorBytes) float apart[kRows][kWidth<float>];  // for sums that are stored down columns
  NeonBlock k{};
  k.a = first.a, k.a_row = 4 * first.a_row, k.a_step = 4 * first.a_column;
  k.b = first.b, k.b_row = 4 * first.b_row, k.depth = steps;
  k.c = whole ? first.c.data : apart[0], k.c_row = whole ? 4 * first.c.row : sizeof apart[0];
  k.start = !first.first ? k.c : first.bias ? first.bias : kZeros, k.start_row = first.first ? 0 : k.c_row;
  k.output = first.finish.output, k.output_row = 4 * first.finish.stride;
  // What the assembly leaves: the last steps of the sums, or what comes after them.
  Block<float> rest = first;
  rest.a += steps * rest.a_column, rest.b += steps * rest.b_row, rest.depth -= steps, rest.first = false;
  bool finished = !first.last || first.finish.activation == Activation::kNone;
  const bool relu = first.finish.activation == Activation::kRelu;
  if (!finished && rest.depth == 0 && by_rows && whole && (relu || k.output)) {
    finished = true;
    k.finish = !k.output ? NeonFinish::kRelu : relu ? NeonFinish::kReluSlope : NeonFinish::kTanhSlope;
  }
  const std::size_t c_step = kRows * first.c.row, output_step = k.output ? kRows * first.finish.stride : 0;
  const auto next = [&]() __attribute__((always_inline)) {
    by_rows ? block_by_rows(k) : block_by_columns(k);
    k.a += a_step, k.output += output_step;
    if (whole) k.c += c_step;
    if (whole && !first.first) k.start = k.c;
  };
  if (whole && rest.depth == 0 && finished) {
    for (; count > 0; --count) next();
    return true;
  }
  const auto each = [&](auto&& f) {
    for (std::size_t r = 0; r < kRows; ++r) {
      for (std::size_t i = 0; i < kWidth<float>; ++i) f(apart[r][i], rest.c.data[r * rest.c.row + i * rest.c.column]);
    }
  };
  for (; count > 0; --count) {
    if (!whole && !first.first) each([](float& here, const float& there) { here = there; });
    next();
    if (!whole) each([](const float& here, float& there) { there = here; });
    if (rest.depth > 0) {
      run_block<float, kRows, kVectors>(rest, whole);
    } else if (!finished) {
      finish_rows<float>(rest.c.data, rest.c.row, kRows, kWidth<float>, rest.finish);
    }
    rest.a += a_step, rest.c.data += c_step;
    if (rest.finish.output) rest.finish.output += output_step;
  }
  return true;
}
#endif

// `count` blocks, one below the other; those of a are `a_step` apart.
template <class T, std::size_t Rows, std::size_t Vectors>
void run_blocks(const Block<T>& first, std::size_t count, std::size_t a_step) {
#if defined(__aarch64__)
  if constexpr (Rows == kRows && Vectors == kVectors && sizeof(T) == sizeof(float)) {
    if (run_blocks_neon(first, count, a_step)) return;
  }
#endif
  const bool whole = first.c.column == 1 && first.columns == Vectors * kLanes<T>;
  Block<T> k = first;  // its own: what is stored cannot change it
  for (; count > 0; --count) {
    for (std::size_t r = Rows; Vectors == kVectors && count > 1 && r < 2 * Rows; ++r) {
      for (std::size_t i = 0; i < kWidth<T>; i += 64 / sizeof(T)) {  // the next sums, before they are needed
        __builtin_prefetch(k.c.data + r * k.c.row + i, 1);
      }
    }
    run_block<T, Rows, Vectors>(k, whole);
    k.a += a_step;
    k.c.data += Rows * k.c.row;
    if (k.finish.output) k.finish.output += Rows * k.finish.stride;
  }
}

}  // namespace
}  // namespace gipo
