#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gipo/study/suite.h"

namespace gipo {

// Where a run of a suite stands, by its folder alone: nothing can disagree with it. suite_results.h has what counts where
// there is no folder.
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

// A checksum, in hex, of all that must be the same for a run to count as one that was run before. Options that stand at
// their defaults are not part of it, so that a new one changes nothing.
std::string options_checksum(const Config& config);

// summary.json of a run. Throws Error where it is of another version, or damaged.
nlohmann::ordered_json read_summary(const std::string& path);

// Mean returns of a run that has ended; nothing where no episode ended.
struct RunReturns {
  std::optional<double> training, greedy;
};
RunReturns returns_of(const nlohmann::ordered_json& summary);

// "-" for a suite without regimes.
std::string regime_text(const std::string& regime);

// The suite as it was run, for whoever reads the folder: names, scores, seeds, and each run's folder. Of `before`, the same
// text of what was chosen earlier, it keeps what the suite's file still has; nothing, where that is damaged.
std::string suite_json(const Suite& suite, const std::string& before = "");

}  // namespace gipo
