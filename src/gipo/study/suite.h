#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gipo/plan/plan.h"
#include "gipo/study/tune_file.h"

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

// Tasks, methods, regimes and seeds by name.
struct SuiteChoice {
  std::vector<std::string> tasks, methods, regimes;
  std::vector<std::int64_t> seeds;
};

// Tasks x methods x regimes x seeds, every run checked. docs/suites.md describes the file.
struct Suite {
  std::string name, out;
  bool keep_checkpoints = true;
  std::vector<SuiteTask> tasks;
  std::vector<std::string> methods, regimes;
  std::vector<std::int64_t> seeds;
  std::vector<SuiteRun> runs;  // seed by seed: what is done first already compares all methods
  SuiteChoice all;             // everything in the file, also what was not chosen, in its order
  std::string tuned;           // path of the options that tuning chose; empty: none
  std::optional<TuneSpec> tune;
};

// `out`: folder of the suite; empty: results/NAME. `choice`: what is to be taken of the file; empty: all. Throws Error with file and line, and the nearest known name.
Suite load_suite(const std::string& path, const std::string& out = "", const SuiteChoice& choice = {});
// Config files that the text names are sought from `folder`.
Suite parse_suite(std::string_view text, const std::string& name, const std::string& folder,
                  const std::string& out = "", const SuiteChoice& choice = {});

// One set of options that tuning tries of a method.
struct Candidate {
  std::string name;        // among the methods of Tuning::runs
  std::size_t method = 0;  // of Tuning::methods
  std::vector<RunSetting> settings;
};

// A suite's file as tuning sees it. What was tuned before is not read.
struct Tuning {
  Suite runs;                        // all that could be run: the candidates are its methods, its seeds those of [tune]
  std::vector<std::string> methods;  // of the file
  std::vector<Candidate> candidates;  // those of a method stand together
};

// `out`: folder; empty: results/NAME-tune. Of `choice`, methods and regimes count. Throws Error as load_suite does, and
// for a file without [tune].
Tuning load_tuning(const std::string& path, const std::string& out = "", const SuiteChoice& choice = {});
Tuning parse_tuning(std::string_view text, const std::string& name, const std::string& folder,
                    const std::string& out = "", const SuiteChoice& choice = {});

}  // namespace gipo
