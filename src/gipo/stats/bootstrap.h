#pragma once

#include <cstdint>
#include <vector>

#include "gipo/stats/aggregate.h"

namespace gipo {

struct BootstrapOptions {
  std::int64_t repetitions = 50'000, profile_repetitions = 2'000;
  double confidence = 0.95;
  double target = 1;  // of the optimality gap
  std::uint64_t seed = 1;
  std::vector<double> taus;  // where profiles are taken, ascending
};

// A value and the interval it lies in.
struct Estimate {
  double value = 0, low = 0, high = 0;
};

struct MethodEstimates {
  Estimate iqm, median, mean, optimality_gap;
  std::vector<Estimate> profile;  // [taus]
};

struct Improvement {
  std::size_t x = 0, y = 0;  // methods
  Estimate probability;      // that a run of x beats one of y
};

struct Estimates {
  std::vector<MethodEstimates> methods;   // in the table's order
  std::vector<Improvement> improvements;  // every x < y; y over x is 1 minus it
};

// Point values with percentile intervals of the stratified bootstrap: the runs of each method and task are resampled
// on their own. Each method has its own random stream, so its intervals do not depend on which others there are.
Estimates estimate(const ScoreTable& table, const BootstrapOptions& options);

}  // namespace gipo
