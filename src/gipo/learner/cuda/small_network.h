// An MLP that is so small that a block of threads has all its weights in shared memory.
#pragma once

#include <cstddef>

#include "gipo/kernels/dense.h"
#include "gipo/policy/mlp.h"

namespace gipo::cuda {

inline constexpr int kSmallLayers = 6, kSmallThreads = 256;

// Places are counted in floats from where the network begins in shared memory. Rows are as long as a multiple of 8, and 4
// more, which spreads what a warp reads over the banks.
struct SmallLayer {
  int in, out;
  int parameters;                // where its weights are among the network's, and behind them its biases
  int weights, biases, outputs;  // [out, row of in], [out], [rows, row of out]
  int delta;                     // [rows, row of out] derivatives by the outputs
};
struct SmallNetwork {
  int layers, rows;    // rows: a multiple of 16
  int input;           // place of [rows, row of inputs]
  int forward_floats;  // without derivatives, which come last
  int floats;          // in all
  Activation activation;
  SmallLayer layer[kSmallLayers];
};

constexpr int whole_eights(int size) { return (size + 7) / 8 * 8; }
constexpr int small_stride(int size) { return whole_eights(size) + 4; }

// Whether it can be one at all; floats say whether there is room.
bool can_be_small(const MlpShape& shape);
SmallNetwork small_network(const MlpShape& shape, int rows);

}  // namespace gipo::cuda
