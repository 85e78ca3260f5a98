// The figures of an update that are sums over its batch, as learners on a card make them. Compiles for host and device.
#pragma once

#include "gipo/core/device.h"

namespace gipo {

// What is summed over the samples, each thread its own before all are added up.
namespace batch_sums {
enum { kAdvantage, kTarget, kValue, kError, kSquare, kEntropy, kProximal, kImportance, kCut, kCount };
}
using BatchSums = double[batch_sums::kCount];

GIPO_HD inline void add_sample(BatchSums& sums, float advantage, float target, float value) {
  using namespace batch_sums;
  const double error = static_cast<double>(value - target);
  sums[kAdvantage] += advantage;
  sums[kTarget] += target;
  sums[kValue] += value;
  sums[kError] += error;
  sums[kSquare] += error * error;
}

// Of n samples with m ratios. target_squares: sum of squared differences of the targets from their mean; weighted: whether
// there are importance weights.
template <class Figures>
GIPO_HD void fill_figures(Figures& f, const BatchSums& sums, double advantage_std, double target_squares, float largest,
                          int n, int m, bool weighted) {
  using namespace batch_sums;
  f.entropy = sums[kEntropy] / n;
  f.proximal_kl = sums[kProximal] / n;
  f.importance_mean = weighted ? sums[kImportance] / m : 1.0;
  f.importance_cut_frac = sums[kCut] / m;
  f.advantage_mean = sums[kAdvantage] / n;
  f.advantage_std = advantage_std;
  f.advantage_abs_max = largest;
  f.value_loss = sums[kSquare] / n;
  f.value_mean = sums[kValue] / n;
  const double variance = target_squares / n, bias = sums[kError] / n;
  f.explained_variance = variance > 0 ? 1.0 - (f.value_loss - bias * bias) / variance : 0.0;
}

}  // namespace gipo
