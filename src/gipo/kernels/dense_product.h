// Matrix products with what comes before and after them (bias, activation, its derivative) done block by block, while the
// result is close by. Part of dense_impl.h; see there for what may be used here.
#pragma once

#include "gipo/kernels/dense.h"
#include "gipo/kernels/dense_block.h"
#include "gipo/kernels/dense_finish.h"
#include "gipo/kernels/dense_vector.h"

namespace gipo {
namespace {

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

// Columns of the next panel where `left` are left.
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
  const std::size_t depth = a.row == 1 && !turn && c.column == 1 ? kShallow : kDepth;
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
