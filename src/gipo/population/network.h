// The networks of a run on a card: see card_run.h. Compiles for host and device.
#pragma once

#include "gipo/kernels/fast_tanh.h"
#include "gipo/population/card.h"
#include "gipo/population/card_run.h"

namespace gipo::population {

GIPO_CARD float activated(Activation activation, float x) {
  return activation == Activation::kTanh ? fast_tanh(x) : x < 0 ? 0.0f : x;
}
// The derivative where the activation gave y.
GIPO_CARD float slope_at(Activation activation, float y) {
  return activation == Activation::kTanh ? 1.0f - y * y : y > 0 ? 1.0f : 0.0f;
}

// finish(row, first column, sums) for every tile of kRows rows x 4 columns of samples x matrix.
template <int kRows, class Team, class Finish>
GIPO_CARD void multiply(Team& team, const Layer& y, const float* weights, const float* samples, int count,
                        const Finish& finish) {
  const int columns = fours(y.out) / 4, groups = (count + kRows - 1) / kRows;
  const float* const matrix = weights + y.offset;
  for (int t = team.rank(); t < columns * groups; t += team.size()) {
    const int column = 4 * (t % columns), group = t / columns;
    const float* x[kRows];
    float sums[kRows][4] = {};
    for (int r = 0; r < kRows; ++r) x[r] = samples + smaller_of(group + r * groups, count - 1) * y.in_stride;
    for (int k = 0; k < y.rows; k += 4) {
      Four v[kRows];
      for (int r = 0; r < kRows; ++r) v[r] = load_four(x[r] + k);
      for (int j = 0; j < 4; ++j) {
        const Four w = load_four(matrix + (k + j) * y.stride + column);
        for (int r = 0; r < kRows; ++r) {
          for (int c = 0; c < 4; ++c) sums[r][c] += v[r].at[j] * w.at[c];
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      if (group + r * groups < count) finish(group + r * groups, column, sums[r]);
    }
  }
}

// The same of derivatives x the matrix turned over, for the columns of what the layer read.
template <int kRows, class Team, class Finish>
GIPO_CARD void multiply_back(Team& team, const Layer& y, const float* weights, const float* derivatives, int stride,
                             int count, const Finish& finish) {
  const int columns = fours(y.in) / 4, groups = (count + kRows - 1) / kRows;
  for (int t = team.rank(); t < columns * groups; t += team.size()) {
    const int column = 4 * (t % columns), group = t / columns;
    const float* const matrix = weights + y.offset + column * y.stride;
    const float* d[kRows];
    float sums[kRows][4] = {};
    for (int r = 0; r < kRows; ++r) d[r] = derivatives + smaller_of(group + r * groups, count - 1) * stride;
    for (int k = 0; k < y.out; k += 4) {
      Four v[kRows];
      for (int r = 0; r < kRows; ++r) v[r] = load_four(d[r] + k);
      for (int c = 0; c < 4; ++c) {
        const Four w = load_four(matrix + c * y.stride + k);
        for (int r = 0; r < kRows; ++r) {
          for (int j = 0; j < 4; ++j) sums[r][c] += v[r].at[j] * w.at[j];
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      if (group + r * groups < count) finish(group + r * groups, column, sums[r]);
    }
  }
}

// Whether tiles of four rows leave half of the threads something to do.
template <class Team>
GIPO_CARD bool four_rows(const Team& team, int columns, int count) {
  return fours(columns) / 4 * ((count + 3) / 4) * 2 >= team.size();
}

// samples[0] -> samples[layers]: the outputs, one row for each sample. Ends with a sync.
template <class Team>
GIPO_CARD void forward(Team& team, const Net& net, const float* weights, float* const* samples, int count,
                       Activation activation) {
  for (int l = 0; l < net.count; ++l) {
    const Layer& y = net.layers[l];
    float* const to = samples[l + 1];
    const bool last = l + 1 == net.count;
    const int stride = last ? y.stride : net.layers[l + 1].in_stride;
    const auto finish = [&](int row, int column, const float* sums) {
      Four v;
      for (int c = 0; c < 4; ++c) {
        const int at = column + c;
        v.at[c] = last ? sums[c] : at < y.out ? activated(activation, sums[c]) : at == y.out ? 1.0f : 0.0f;
      }
      store_four(to + row * stride + column, v);
      if (!last && column + 4 == y.out) store_four(to + row * stride + y.out, {{1, 0, 0, 0}});
    };
    if (four_rows(team, y.out, count)) {
      multiply<4>(team, y, weights, samples[l], count, finish);
    } else {
      multiply<1>(team, y, weights, samples[l], count, finish);
    }
    team.sync();
  }
}

// gradient += samples x derivatives, over `count` of each. Where a layer has few tiles, several threads share the samples of
// one. Ends with a sync.
template <class Team>
GIPO_CARD void add_gradient(Team& team, const Layer& y, const float* samples, const float* derivatives, int stride,
                            int count, float* gradient, float* parts) {
  const int columns = fours(y.out) / 4, tiles = y.rows / 4 * columns;
  const int shares = within(team.size() / tiles, 1, 16), all = tiles * shares;
  float* const matrix = gradient + y.offset;
  for (int t = team.rank(); t < all; t += team.size()) {
    const int tile = t % tiles, k = 4 * (tile / columns), o = 4 * (tile % columns);
    float sums[4][4] = {};
    for (int s = t / tiles; s < count; s += shares) {
      const Four x = load_four(samples + s * y.in_stride + k), d = load_four(derivatives + s * stride + o);
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) sums[i][j] += x.at[i] * d.at[j];
      }
    }
    for (int i = 0; i < 4; ++i) {
      if (shares == 1) {
        float* const at = matrix + (k + i) * y.stride + o;
        Four sum = load_four(at);
        for (int j = 0; j < 4; ++j) sum.at[j] += sums[i][j];
        store_four(at, sum);
      } else {
        for (int j = 0; j < 4; ++j) parts[(4 * i + j) * all + t] = sums[i][j];
      }
    }
  }
  team.sync();
  if (shares == 1) return;
  for (int e = team.rank(); e < 16 * tiles; e += team.size()) {
    const int tile = e % tiles, i = e / tiles / 4, j = e / tiles % 4;
    float sum = 0;
    for (int share = 0; share < shares; ++share) sum += parts[(4 * i + j) * all + share * tiles + tile];
    matrix[(4 * (tile / columns) + i) * y.stride + 4 * (tile % columns) + j] += sum;
  }
  team.sync();
}

// Of the last forward, for the derivatives by its outputs that stand in their place: adds to the gradient. What layers
// read is written over by the derivatives. Ends with a sync.
template <class Team>
GIPO_CARD void backward(Team& team, const Net& net, const float* weights, float* const* samples, int count,
                        Activation activation, float* gradient, float* parts) {
  int stride = net.layers[net.count - 1].stride;
  for (int l = net.count - 1; l >= 0; --l) {
    const Layer& y = net.layers[l];
    add_gradient(team, y, samples[l], samples[l + 1], stride, count, gradient, parts);
    if (l == 0) break;
    float* const below = samples[l];
    const auto finish = [&](int row, int column, const float* sums) {
      float* const at = below + row * y.in_stride + column;
      Four v = load_four(at);
      for (int c = 0; c < 4; ++c) v.at[c] = column + c < y.in ? sums[c] * slope_at(activation, v.at[c]) : 0.0f;
      store_four(at, v);
    };
    if (four_rows(team, y.in, count)) {
      multiply_back<4>(team, y, weights, samples[l + 1], stride, count, finish);
    } else {
      multiply_back<1>(team, y, weights, samples[l + 1], stride, count, finish);
    }
    stride = y.in_stride;
    team.sync();
  }
}

}  // namespace gipo::population
