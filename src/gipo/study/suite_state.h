#pragma once

#include <string>

#include "gipo/study/suite.h"

namespace gipo {

// Where a run of a suite stands, by its folder alone: nothing else is remembered, so nothing can disagree with it.
enum class RunState {
  kAbsent,    // no folder, or one that was killed before its first checkpoint: begin
  kStarted,   // it has a checkpoint: resume
  kFinished,  // never run again
  kFailed,    // it ended by itself before it was done
};

struct RunStanding {
  RunState state = RunState::kAbsent;
  std::string why;  // of a failure
};

// Throws Error, naming the path, where the folder is of another version, was made with other options, or is in use by
// another program.
RunStanding look_at(const SuiteRun& run);

// Removes what a run left that was killed before its first checkpoint. Throws Error where anything else lies there.
void remove_remnants(const std::string& run_dir);

// Updates done by the newest line of its log; 0 where there is none.
std::int64_t updates_done(const std::string& run_dir);

// Mean returns of a run that has ended; nothing where no episode ended.
struct RunReturns {
  std::optional<double> training, greedy;
};
RunReturns returns_of(const std::string& run_dir);

// One row per run, finished or not, in the suite's order: its place in the suite, returns, and the means over its last
// fifth. Holds no time and no path, so it is the same bytes however often the suite was interrupted.
std::string results_json(const Suite& suite);

// The suite as it was run, for whoever reads the folder: names, scores, seeds, and each run's folder.
std::string suite_json(const Suite& suite);

}  // namespace gipo
