#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gipo/study/suite_nodes.h"

namespace gipo {

enum class TuneScore { kTraining, kGreedy, kMean };  // which return; kMean: of the two
const char* word_for(TuneScore score);

// The values that are tried of one option.
struct TuneAxis {
  std::string key;
  std::vector<RunSetting> values;
};
using TuneGrid = std::vector<TuneAxis>;

// The part [tune] of a suite's file, and what each [[method]] has as `tune`.
struct TuneSpec {
  std::vector<std::int64_t> seeds;
  std::vector<std::string> tasks;  // to tune on; empty: all of the suite
  std::size_t candidates = 12;     // of each method, at most
  std::size_t first_seeds = 2;     // of the first round
  double keep = 0.34;              // share that goes on after a round
  TuneScore score = TuneScore::kTraining;
  std::map<std::string, TuneGrid> grids;  // of each method; an own list stands in place of a common one
};

// `methods`: name and table of each. Seeds for tuning must be none of `reported`. Throws Error with file and line.
TuneSpec read_tune(const toml::node& node, const std::vector<std::pair<std::string, const toml::table*>>& methods,
                   const std::vector<std::int64_t>& reported, const std::string& name);

// Points of a grid in its order, the last option fastest. Where it has more than `most`, a choice of so many that
// depends on nothing but the two numbers: methods with grids of one shape get the same points.
std::vector<std::vector<RunSetting>> points_of(const TuneGrid& grid, std::size_t most);

// Of a method with these options: the options say it, not their place in the grid, so that a grid may grow and what was
// run before still counts.
std::string candidate_name(const std::string& method, const std::vector<RunSetting>& settings);

// What tuning chose, by method and regime.
using TunedOptions = std::map<std::pair<std::string, std::string>, std::vector<RunSetting>>;
// Reads what `gipo tune` wrote. Every method needs options for every regime; an entry without a regime is for all of
// them. Throws Error, naming it, for a method or regime that only one of the two files has.
TunedOptions load_tuned(const std::string& path, const std::vector<std::string>& methods,
                        const std::vector<std::string>& regimes);

}  // namespace gipo
