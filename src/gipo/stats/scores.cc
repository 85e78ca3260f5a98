#include "gipo/stats/scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gipo/core/error.h"

namespace gipo {

ScoreTable normalised(const ScoreTable& table, std::span<const ScoreScale> scales) {
  GIPO_CHECK(scales.size() == table.tasks.size());
  ScoreTable result = table;
  for (TaskScores& method : result.scores) {
    for (std::size_t t = 0; t < scales.size(); ++t) {
      const double width = scales[t].one - scales[t].zero;
      if (width == 0) {
        throw Error(fmt::format("task {}: the scores that become 0 and 1 are both {}: they must differ", table.tasks[t],
                                scales[t].one));
      }
      for (double& score : method[t]) score = (score - scales[t].zero) / width;
    }
  }
  return result;
}

std::vector<ScoreScale> min_max_scales(const ScoreTable& table) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<ScoreScale> scales(table.tasks.size(), {kInfinity, -kInfinity});
  for (const TaskScores& method : table.scores) {
    for (std::size_t t = 0; t < scales.size(); ++t) {
      for (const double score : method[t]) {
        scales[t].zero = std::min(scales[t].zero, score);
        scales[t].one = std::max(scales[t].one, score);
      }
    }
  }
  return scales;
}

MeanStd mean_std(std::span<const double> values) {
  GIPO_CHECK(!values.empty());
  const auto n = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const double v : values) mean += v / n;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return {mean, values.size() > 1 ? std::sqrt(squares / (n - 1)) : std::numeric_limits<double>::quiet_NaN()};
}

}  // namespace gipo
