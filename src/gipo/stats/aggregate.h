#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gipo/stats/scores.h"

namespace gipo {

// Aggregates over runs and tasks as rliable defines them (Agarwal et al., 2021).
struct Aggregates {
  double iqm = 0;             // mean of the middle half of all scores: floor(n/4) dropped at each end
  double median = 0;          // of the tasks' means
  double mean = 0;            // of the tasks' means
  double optimality_gap = 0;  // mean of how far scores stay below the target, those above it counting as at it
};

// The scores of one method in the order that every aggregate needs, so that a resampled set is only a count of how
// often each score was drawn: nothing is sorted again.
class RankedScores {
 public:
  explicit RankedScores(const TaskScores& scores, double target = 1);

  std::size_t size() const { return values_.size(); }
  const std::vector<std::size_t>& task_sizes() const { return task_sizes_; }
  // `counts` [size]: how often each score, task after task, stands in the set; per task they sum to its runs.
  Aggregates aggregates(std::span<const std::uint32_t> counts) const;
  // Fraction of scores > tau for each of `taus`, ascending.
  void profile(std::span<const std::uint32_t> counts, std::span<const double> taus, std::span<double> fractions) const;

 private:
  double target_;
  std::vector<std::size_t> task_sizes_;  // runs of each task
  std::vector<double> values_;           // task after task
  std::vector<std::size_t> order_;       // indices of values_, ascending by value
};

// How likely a run of x beats one of y: Mann-Whitney U / (n m), ties one half, averaged over tasks. Ranked once, like
// RankedScores.
class RankedPair {
 public:
  RankedPair(const TaskScores& x, const TaskScores& y);
  double improvement(std::span<const std::uint32_t> x_counts, std::span<const std::uint32_t> y_counts) const;

 private:
  struct Entry {
    std::uint32_t index;
    bool of_x, ends_tie;  // the last of those with an equal score
  };
  struct Task {
    std::vector<Entry> entries;  // ascending by score
    double pairs;                // n m
  };
  std::vector<Task> tasks_;
};

// Of the scores as they are.
Aggregates aggregates(const TaskScores& scores, double target = 1);
std::vector<double> profile(const TaskScores& scores, std::span<const double> taus);
double probability_of_improvement(const TaskScores& x, const TaskScores& y);

}  // namespace gipo
