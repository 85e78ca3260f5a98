// Small matrix products with what comes before and after them (bias, activation, its derivative) done block by block,
// while the result is close by. Part of dense_impl.h; see there for what may be used here.
#pragma once

#include "gipo/policy/dense.h"
#include "gipo/policy/dense_vector.h"
#if defined(__aarch64__)
#include "gipo/policy/dense_neon.h"
#endif

namespace gipo {
namespace {

// Registers: a block of kRows x (kVectors vectors) sums, the vectors of one row of b, and one broadcast value.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr std::size_t kRows = 6, kVectors = 4;  // of 32 registers
#else
constexpr std::size_t kRows = 6, kVectors = 2;  // of 16
#endif
// Steps of the inner sum after which the sums are put aside: a panel of b, this many rows high, stays in the caches.
constexpr std::size_t kDepth = 512;
// Bytes from one row of b, or one column of a, to the next from which on they share so few places of the first cache that
// a copy side by side pays; where columns of a are nearer, and read as they stand, kShallow is their kDepth.
constexpr std::size_t kFarRows = 1024;
#if defined(__aarch64__)
constexpr std::size_t kFarColumns = 1024, kShallow = 128;  // four lines to a place
#else
constexpr std::size_t kFarColumns = 2048, kShallow = kDepth;
#endif
// Rows of a that meet one panel of b after the other while they stay in the second cache, kDepth of each.
constexpr std::size_t kGroup = 43 * kRows;
// Layers with no more outputs than this are sums along the inputs, not products: they would not fill a vector.
constexpr std::size_t kMostDots = 4;

// Columns of a block of sums, and of the next panel where `left` are left.
template <class T>
constexpr std::size_t kWidth = kVectors* kLanes<T>;
template <class T>
constexpr std::size_t panel_width(std::size_t left) {
  return left >= kWidth<T> ? kWidth<T> : left >= 2 * kLanes<T> ? 2 * kLanes<T> : left >= kLanes<T> ? kLanes<T> : left;
}

// Lanes that a row of n fills, in percent of those of its panels, were all of them whole.
template <class T>
constexpr std::size_t filled(std::size_t n) {
  return 100 * n / ((n + kWidth<T> - 1) / kWidth<T> * kWidth<T>);
}

struct Sizes {
  std::size_t rows, columns, depth;
};

// Element (i, k) stands at data[i * row + k * column].
template <class T>
struct Strided {
  T* data;
  std::size_t row, column;
};

// What is done with a finished sum: the activation, or, where `output` is given, times the activation's derivative there.
template <class T>
struct Finish {
  Activation activation = Activation::kNone;
  const T* output = nullptr;  // [rows, columns] the activation's
  std::size_t stride = 0;     // of its rows
};

template <class T>
inline Vec<T> relu_of(Vec<T> v) {
  return v < Vec<T>{} ? Vec<T>{} : v;  // NaN stays NaN
}
template <class T>
inline Vec<T> times_relu_slope(Vec<T> v, Vec<T> output) {
  return output > Vec<T>{} ? v : Vec<T>{};
}
template <class T>
inline Vec<T> times_tanh_slope(Vec<T> v, Vec<T> output) {
  return v * (T(1) - output * output);
}

// values [rows, columns] = finish(values); their rows are `stride` apart.
template <class T>
void finish_rows(T* values, std::size_t stride, std::size_t rows, std::size_t columns, const Finish<T>& f) {
  if (f.activation == Activation::kNone) return;
  const auto each = [&](auto&& finish) __attribute__((always_inline)) {
    const T* output = f.output ? f.output : values;  // not read where there is none
    const std::size_t output_stride = f.output ? f.stride : stride;
    T* row = values;
    for (std::size_t r = 0; r < rows; ++r, row += stride, output += output_stride) {
      std::size_t i = 0;
      const auto some = [&]<std::size_t N>() __attribute__((always_inline)) {
        Vec<T> v[N];
        unrolled<N>([&](std::size_t k) { v[k] = load(row + i + k * kLanes<T>); });
        finish(v, output + i);
        unrolled<N>([&](std::size_t k) { store(row + i + k * kLanes<T>, v[k]); });
      };
      for (; i + kWidth<T> <= columns; i += kWidth<T>) some.template operator()<kVectors>();
      for (; i + kLanes<T> <= columns; i += kLanes<T>) some.template operator()<1>();
      if (i == columns) continue;
      Vec<T> v[1] = {load_some(row + i, columns - i)};
      alignas(kVectorBytes) T rest[kLanes<T>] = {};
      for (std::size_t k = i; k < columns; ++k) rest[k - i] = output[k];
      finish(v, rest);
      store_some(row + i, v[0], columns - i);
    }
  };
  const auto each_vector = [&](auto&& of) __attribute__((always_inline)) {
    each([&]<std::size_t N>(Vec<T>(&v)[N], const T* output) __attribute__((always_inline)) {
      unrolled<N>([&](std::size_t k) { v[k] = of(v[k], load(output + k * kLanes<T>)); });
    });
  };
  if (f.output && f.activation == Activation::kTanh) {
    each_vector(times_tanh_slope<T>);
  } else if (f.output && f.activation == Activation::kRelu) {
    each_vector(times_relu_slope<T>);
  } else if (f.activation == Activation::kTanh) {
    each([](auto& v, const T*) { tanh_of(v); });
  } else if (f.activation == Activation::kRelu) {
    each_vector([](Vec<T> v, Vec<T>) { return relu_of<T>(v); });
  }
}

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

// The blocks of run_blocks in assembly, where it can; returns whether it could.
inline bool run_blocks_neon(const Block<float>& first, std::size_t count, std::size_t a_step) {
  const bool by_rows = first.a_column == 1, slope = first.finish.output;
  const bool none = !first.last || first.finish.activation == Activation::kNone;
  if (by_rows ? first.depth < 4 || first.depth % 4 != 0 : first.a_row != 1 || !none) return false;
  if (first.columns != kWidth<float> || first.c.column != 1 || first.depth == 0) return false;
  static constexpr float kZeros[kWidth<float>] = {};
  const bool relu = first.finish.activation == Activation::kRelu, after = !none && !relu && !slope;
  NeonBlock k{first.a,
              4 * first.a_row,
              4 * first.a_column,
              first.b,
              4 * first.b_row,
              first.depth,
              !first.first ? first.c.data
              : first.bias ? first.bias
                           : kZeros,
              first.first ? 0 : 4 * first.c.row,
              first.c.data,
              4 * first.c.row,
              NeonFinish::kNone,
              first.finish.output,
              4 * first.finish.stride};
  if (!none && slope) k.finish = relu ? NeonFinish::kReluSlope : NeonFinish::kTanhSlope;
  if (!none && relu && !slope) k.finish = NeonFinish::kRelu;
  const std::size_t c_step = kRows * first.c.row, start_step = first.first ? 0 : c_step;
  const std::size_t output_step = slope ? kRows * first.finish.stride : 0;
  for (; count > 0; --count) {
    by_rows ? block_by_rows(k) : block_by_columns(k);
    if (after) finish_rows<float>(k.c, first.c.row, kRows, kWidth<float>, first.finish);
    k.a += a_step, k.c += c_step, k.start += start_step, k.output += output_step;
  }
  return true;
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

// One panel of columns, `Vectors` wide, over `rows` rows; those of a are `a_step` apart from one block to the next.
template <class T, std::size_t Vectors>
void run_panel(Block<T>& block, std::size_t rows, std::size_t a_step) {
  const std::size_t count = rows / kRows;
  run_blocks<T, kRows, Vectors>(block, count, a_step);
  block.a += count * a_step;
  block.c.data += count * kRows * block.c.row;
  if (block.finish.output) block.finish.output += count * kRows * block.finish.stride;
  switch (rows % kRows) {
    case 1:
      return run_blocks<T, 1, Vectors>(block, 1, a_step);
    case 2:
      return run_blocks<T, 2, Vectors>(block, 1, a_step);
    case 3:
      return run_blocks<T, 3, Vectors>(block, 1, a_step);
    case 4:
      return run_blocks<T, 4, Vectors>(block, 1, a_step);
    case 5:
      return run_blocks<T, 5, Vectors>(block, 1, a_step);
    default:
      return;
  }
}

// The right factor [depth, columns]: row-major, or, where `packed`, one panel of columns after the other.
template <class T>
struct Right {
  const T* data;
  bool packed = false;
};

// All columns of `rows` rows, panel by panel, from step `d` of the inner sum on. `block` begins at column 0; one for all,
// since a copy of what has just been written waits for it.
template <class T>
void run_columns(const Sizes& n, const Right<T>& b, std::size_t d, Block<T>& block, std::size_t rows,
                 std::size_t a_step) {
  alignas(kVectorBytes) T panel[kDepth * kWidth<T>];
  const T *a = block.a, *bias = block.bias, *output = block.finish.output;
  T* c = block.c.data;
  for (std::size_t column = 0; column < n.columns; column += block.columns) {
    const std::size_t left = n.columns - column;
    block.columns = panel_width<T>(left);
    block.a = a;
    block.c.data = c + column * block.c.column;
    if (bias) block.bias = bias + column;
    if (output) block.finish.output = output + column;
    block.b_row = b.packed ? block.columns : n.columns;
    block.b = b.packed ? b.data + column * n.depth + d * block.columns : b.data + d * n.columns + column;
    if (left < kLanes<T>) {  // filled up with zeros
      for (std::size_t k = 0; k < block.depth; ++k) {
        store(panel + k * kLanes<T>, load_some(block.b + k * block.b_row, left));
      }
      block.b = panel, block.b_row = kLanes<T>;
    } else if (block.columns == kWidth<T> && block.b_row * sizeof(T) >= kFarRows && rows >= 8 * kRows) {
      for (std::size_t k = 0; k < block.depth; ++k) {
        for (std::size_t i = 0; i < kWidth<T>; i += kLanes<T>) {
          store(panel + k * kWidth<T> + i, load(block.b + k * block.b_row + i));
        }
      }
      block.b = panel, block.b_row = kWidth<T>;
    }
    if (block.columns == kWidth<T>) {
      run_panel<T, kVectors>(block, rows, a_step);
    } else if (block.columns == 2 * kLanes<T>) {
      run_panel<T, 2>(block, rows, a_step);
    } else {
      run_panel<T, 1>(block, rows, a_step);
    }
  }
}

// turned: for every kRows rows of a, which stand side by side, their `depth` columns one after the other. Eight columns at
// a time: their lines serve the next rows too, and more of them would not stay in the cache.
template <class T>
void turn_rows(const T* a, std::size_t a_column, std::size_t rows, std::size_t depth, T* turned) {
  for (std::size_t begin = 0; begin < depth; begin += 8) {
    const std::size_t end = begin + 8 < depth ? begin + 8 : depth;
    for (std::size_t r = 0; r < rows; r += kRows) {
      const std::size_t count = rows - r < kRows ? rows - r : kRows;
      for (std::size_t d = begin; d < end; ++d) {
        const T* from = a + r + d * a_column;
        T* to = turned + r * depth + d * kRows;
        if (count == kRows) {
          __builtin_memcpy(to, from, kRows * sizeof(T));
        } else {
          for (std::size_t k = 0; k < count; ++k) to[k] = from[k];
        }
      }
    }
  }
}

// c [rows, columns] = finish(a [rows, depth] b + bias [columns]).
template <class T>
void product(const Sizes& n, Strided<const T> a, const Right<T>& b, const Strided<T>& c, const T* bias,
             const Finish<T>& finish) {
  alignas(kVectorBytes) T turned[kGroup * kDepth];
  const bool turn = a.row == 1 && a.column * sizeof(T) >= kFarColumns;
  const std::size_t depth = a.row == 1 && !turn ? kShallow : kDepth;
  for (std::size_t d = 0; d < n.depth; d += depth) {
    Block<T> block{};
    block.depth = n.depth - d < depth ? n.depth - d : depth;
    block.first = d == 0, block.last = d + block.depth == n.depth;
    for (std::size_t r = 0; r < n.rows; r += kGroup) {
      const std::size_t rows = n.rows - r < kGroup ? n.rows - r : kGroup;
      block.bias = bias;
      block.a = a.data + r * a.row + d * a.column;
      block.a_row = a.row, block.a_column = a.column;
      block.c = {c.data + r * c.row, c.row, c.column};
      block.finish = finish;
      if (finish.output) block.finish.output += r * finish.stride;
      if (turn) {
        turn_rows(block.a, a.column, rows, block.depth, turned);
        block.a = turned, block.a_row = 1, block.a_column = kRows;
      }
      run_columns(n, b, d, block, rows, turn ? kRows * block.depth : kRows * a.row);
    }
  }
}

// z [Vectors vectors] = x [depth] b + bias, for a panel b [depth, Vectors vectors]. Four sums of each take turns: one alone
// would wait for its own last addition.
template <class T, std::size_t Vectors>
void row_times_panel(const T* x, const T* b, const T* bias, T* z, std::size_t depth) {
  constexpr std::size_t kWide = Vectors * kLanes<T>, kTurns = 4;
  Vec<T> sum[kTurns][Vectors];
  for_each_vector<kTurns, Vectors>(
      [&](std::size_t turn, std::size_t v) { sum[turn][v] = turn == 0 ? load(bias + v * kLanes<T>) : Vec<T>{}; });
  std::size_t d = 0;
  for (; d + kTurns <= depth; d += kTurns, b += kTurns * kWide) {
    for_each_vector<kTurns, Vectors>([&](std::size_t turn, std::size_t v) {
      sum[turn][v] += splat(x[d + turn]) * load(b + turn * kWide + v * kLanes<T>);
    });
  }
  for (; d < depth; ++d, b += kWide) {
    unrolled<Vectors>([&](std::size_t v) { sum[0][v] += splat(x[d]) * load(b + v * kLanes<T>); });
  }
  unrolled<Vectors>(
      [&](std::size_t v) { store(z + v * kLanes<T>, (sum[0][v] + sum[1][v]) + (sum[2][v] + sum[3][v])); });
}

// z [columns] = finish(x [depth] b + bias) for one row and a packed b: what an actor with one environment waits for.
template <class T>
void row_product(const T* x, const T* b, const T* bias, T* z, std::size_t depth, std::size_t columns,
                 const Finish<T>& finish) {
  std::size_t width;
  for (std::size_t column = 0; column < columns; column += width) {
    width = panel_width<T>(columns - column);
    const T *panel = b + column * depth, *start = bias + column;
    T* to = z + column;
    if (width == kWidth<T>) {
      row_times_panel<T, kVectors>(x, panel, start, to, depth);
    } else if (width == 2 * kLanes<T>) {
      row_times_panel<T, 2>(x, panel, start, to, depth);
    } else if (width == kLanes<T>) {
      row_times_panel<T, 1>(x, panel, start, to, depth);
    } else {
      for (std::size_t i = 0; i < width; ++i) {
        to[i] = start[i];
        for (std::size_t d = 0; d < depth; ++d) to[i] += x[d] * panel[d * width + i];
      }
    }
  }
  finish_rows<T>(z, 0, 1, columns, finish);
}

// z [rows, out] = finish(x [rows, in] weight [out, in]^T + bias), for a few outputs; a vector's worth of them at a time.
template <class T>
void dots(const T* weight, const T* bias, const T* x, T* z, std::size_t in, std::size_t out, std::size_t rows,
          const Finish<T>& finish) {
  std::size_t o = 0;
  const auto next = [&](T & left) __attribute__((always_inline)) {
    const T* w = weight + o * in;
    Vec<T> sum{};
    std::size_t i = 0;
    for (; i + kLanes<T> <= in; i += kLanes<T>) sum += load(x + i) * load(w + i);
    left = bias[o];
    for (; i < in; ++i) left += x[i] * w[i];
    if (++o == out) o = 0, x += in;
    return sum;
  };
  std::size_t left = rows * out;
  for (; left >= kLanes<T>; left -= kLanes<T>, z += kLanes<T>) {
    Vec<T> sums[kLanes<T>];
    for (std::size_t k = 0; k < kLanes<T>; ++k) sums[k] = next(z[k]);
    store(z, load(z) + totals<T>(sums));
    finish_rows<T>(z, 0, 1, kLanes<T>, finish);
  }
  for (std::size_t k = 0; k < left; ++k) {
    const Vec<T> sum = next(z[k]);
    z[k] += total<T>(sum);
  }
  finish_rows<T>(z, 0, 1, left, finish);
}

// sums [columns] = over the rows of values [rows, columns]; `Vectors` at a time, so that whole lines of the cache are read.
template <class T, std::size_t Vectors>
void sum_columns(const T* values, T* sums, std::size_t columns, std::size_t rows) {
  Vec<T> sum[Vectors] = {};
  for (std::size_t r = 0; r < rows; ++r, values += columns) {
    for (std::size_t v = 0; v < Vectors; ++v) sum[v] += load(values + v * kLanes<T>);
  }
  for (std::size_t v = 0; v < Vectors; ++v) store(sums + v * kLanes<T>, sum[v]);
}
template <class T>
void column_sums(const T* values, T* sums, std::size_t columns, std::size_t rows) {
  std::size_t c = 0;
  for (; c + 8 * kLanes<T> <= columns; c += 8 * kLanes<T>) sum_columns<T, 8>(values + c, sums + c, columns, rows);
  for (; c + kLanes<T> <= columns; c += kLanes<T>) sum_columns<T, 1>(values + c, sums + c, columns, rows);
  for (; c < columns; ++c) {
    sums[c] = 0;
    for (std::size_t r = 0; r < rows; ++r) sums[c] += values[r * columns + c];
  }
}

}  // namespace
}  // namespace gipo
