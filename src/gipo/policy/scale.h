#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "gipo/stats/moments.h"

namespace gipo {

// What the networks see of an observation: (x - mean) * inverse_std, within +-limit. Travels with the weights.
struct ObservationScale {
  std::vector<float> mean, inverse_std;  // [dims]
  float limit = std::numeric_limits<float>::infinity();

  static ObservationScale identity(std::size_t dims);
  void set(const RunningMoments& moments);
  // Moments of so many observations that give this scale; of a scale that was set.
  RunningMoments as_moments(double count) const;
  bool is_set() const { return limit < std::numeric_limits<float>::infinity(); }
  template <class T>
  void apply(std::span<const float> rows, T* out) const;  // [n, dims]
};

// What the learner sees of a reward: divided by the deviation of the discounted returns so far, within +-limit. Without
// any, rewards stay as they are.
struct RewardScale {
  float factor = 1.0f;
  float limit = std::numeric_limits<float>::infinity();

  RewardScale() = default;
  explicit RewardScale(const RunningMoments& returns);  // of one column
  float apply(float reward) const { return std::clamp(factor * reward, -limit, limit); }
};

}  // namespace gipo
