// Networks for a team of threads: how their parameters lie. Compiles for host and device.
//
// A layer's matrix lies as [inputs + 1, outputs]: its last row is the bias, and every row of samples ends with a one.
// Threads take tiles of 4 samples x 4 outputs: 64 products for 8 reads of 16 bytes. Strides are odd multiples of 16 bytes,
// so that neighbouring rows lie in different banks.
#pragma once

#include <cstddef>

#include "gipo/core/device.h"

namespace gipo {
struct MlpShape;
}

namespace gipo::team {

inline constexpr int kMostLayers = 6;

GIPO_HD constexpr int fours(int n) { return (n + 3) / 4 * 4; }
// At least n floats, as an odd number of fours.
GIPO_HD constexpr int odd_fours(int n) { return fours(n) / 4 % 2 == 1 ? fours(n) : fours(n) + 4; }

struct Layer {
  int in = 0, out = 0;
  int rows = 0;       // fours(in + 1): of the matrix
  int stride = 0;     // odd_fours(out): of the matrix
  int in_stride = 0;  // odd_fours(in + 1): of the samples that it reads
  int offset = 0;     // of the matrix among the parameters
};

struct Net {
  Layer layers[kMostLayers];
  int count = 0;
  int extra = 0;       // log standard deviations, behind the matrices
  int extra_at = 0;    // where they are
  int parameters = 0;  // floats in all, padding included
};

// No more than kMostLayers layers, without LayerNorm.
Net net_of(const MlpShape& shape, std::size_t extra);

}  // namespace gipo::team
