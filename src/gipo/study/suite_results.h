#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gipo/study/suite_state.h"

namespace gipo {

// One row of results.json, as it was read.
struct ResultRow {
  std::string task, method, regime, name;
  std::int64_t seed = 0;
  std::string ended, options;  // options_checksum of the run; empty: of an earlier version
  RunReturns returns;
  std::string text;  // of the whole row
};

// Throws Error with `where` for what is no results.json.
std::vector<ResultRow> parse_results(std::string_view text, const std::string& where);

// results.json of a suite's folder: one row per run in the order of the suite's file, finished or not, with its place in
// the suite, returns, and the means over its last fifth. It holds no time and no path, so it is the same bytes however
// often the suite was interrupted. A finished row whose run folder is gone stands for the run, so that this file alone
// is enough to go on elsewhere. Rows of runs that were not chosen, or that the suite's file no longer has, stay.
class SuiteResults {
 public:
  // Throws Error, naming the file, where it is damaged, or where a row stands for a run that now has other options.
  explicit SuiteResults(const Suite& suite);

  // Whether the row stands for the run.
  bool kept(std::size_t run) const { return kept_[run].has_value(); }
  // Takes the row of a run that has ended from its folder.
  void take(std::size_t run);
  RunReturns returns(std::size_t run) const;  // of a run that has ended
  const std::string& row(std::size_t run) const { return lines_[run].text; }
  std::string text() const;

 private:
  // Of seed, regime, task and method in the suite's file; behind all of them where it lacks one of the four.
  using Place = std::array<std::size_t, 4>;
  class Order;
  struct Line {
    Place place;
    std::string text;
  };

  void read(const std::string& path, const Order& order);
  void take_row(std::size_t run, ResultRow& row, const std::string& path);
  nlohmann::ordered_json head(std::size_t run) const;

  const Suite* suite_;
  std::vector<std::string> options_;             // [runs], checksums
  std::vector<std::optional<RunReturns>> kept_;  // [runs]
  std::vector<Line> lines_;                      // those of the runs, then others of the file
  std::vector<std::size_t> order_;               // of lines_ in the file
};

}  // namespace gipo
