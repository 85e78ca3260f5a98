#pragma once

#include <span>
#include <string>
#include <vector>

namespace gipo {

using TaskScores = std::vector<std::vector<double>>;  // [task][run]

// Final scores of several methods on several tasks. The number of runs may differ, as where one failed, but every
// method has at least one run of every task.
struct ScoreTable {
  std::vector<std::string> methods, tasks;
  std::vector<TaskScores> scores;  // [method][task][run]
};

// The scores of a task that become 0 and 1.
struct ScoreScale {
  double zero = 0, one = 1;
};

// (score - zero) / (one - zero), `scales` one per task. Throws Error naming the task where the two are equal.
ScoreTable normalised(const ScoreTable& table, std::span<const ScoreScale> scales);
// The least and the greatest score of each task over all methods and runs.
std::vector<ScoreScale> min_max_scales(const ScoreTable& table);

// Mean and standard deviation of a sample (n - 1); the latter NaN for a single value.
struct MeanStd {
  double mean = 0, std = 0;
};
MeanStd mean_std(std::span<const double> values);

}  // namespace gipo
