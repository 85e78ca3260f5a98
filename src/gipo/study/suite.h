#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gipo/plan/plan.h"

namespace gipo {

struct SuiteTask {
  std::string name;
  std::optional<double> random, reference;  // the scores that become 0 and 1
  std::optional<double> threshold;          // a return; the report says when each run first reached it
};

// One run of a suite.
struct SuiteRun {
  std::size_t task = 0, method = 0, regime = 0;
  std::int64_t seed = 0;
  Plan plan;
  std::vector<std::string> arguments;  // of `gipo`, to begin it
};

// Tasks x methods x regimes x seeds, every run checked. docs/suites.md describes the file.
struct Suite {
  std::string name, out;
  bool keep_checkpoints = true;
  std::vector<SuiteTask> tasks;
  std::vector<std::string> methods, regimes;
  std::vector<std::int64_t> seeds;
  std::vector<SuiteRun> runs;  // seed by seed: what is done first already compares all methods
};

// What is to be taken of a suite's file, by name; empty: all.
struct SuiteChoice {
  std::vector<std::string> tasks, methods, regimes;
  std::vector<std::int64_t> seeds;
};

// `out`: folder of the suite; empty: results/NAME. Throws Error with file and line, and the nearest known name.
Suite load_suite(const std::string& path, const std::string& out = "", const SuiteChoice& choice = {});
// Config files that the text names are sought from `folder`.
Suite parse_suite(std::string_view text, const std::string& name, const std::string& folder,
                  const std::string& out = "", const SuiteChoice& choice = {});

}  // namespace gipo
