#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gipo/stats/scores.h"

namespace gipo {

// A table of final scores as a user gives it; docs/report.md describes both formats.
struct ScoreFile {
  ScoreTable table;
  std::vector<ScoreScale> scales;  // one per task; empty where the file states none
};

// JSON, or CSV where the name ends in .csv. Throws Error naming file, line or key, and what is wanted.
ScoreFile load_scores(const std::string& path);
ScoreFile parse_scores(std::string_view text, const std::string& name);

}  // namespace gipo
