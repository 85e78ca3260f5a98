#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gipo/io/files.h"
#include "gipo/objective/diagnostics.h"
#include "gipo/plan/plan.h"
#include "gipo/run/event_file.h"
#include "gipo/run/records.h"

namespace gipo {

using Figures = std::vector<std::pair<std::string, double>>;

// What a run came to, for summary.json.
struct RunSummary {
  std::string ended;  // "finished", "solved", "stopped", "interrupted" or "failed: why"
  std::int64_t env_steps = 0, updates = 0, episodes = 0;
  std::int64_t skipped_updates = 0;
  std::uint64_t rejected_segments = 0, replay_size = 0, replay_evicted = 0;
  FaultCounts faults, eval_faults;
  double seconds = 0;
  ReturnStats final_return, eval_return;
  std::optional<BestEvaluation> best;  // where evaluations ran on the way
  std::uint32_t weights_fingerprint = 0, replay_fingerprint = 0;
};

// Whether a run with this end has done all it was asked to, its last evaluation included.
inline bool ended_well(std::string_view ended) {
  return ended == "finished" || ended == "solved" || ended == "stopped";
}

// Bytes of each log at some moment, by file name. A resumed run cuts its logs back to those of its checkpoint.
using LogPositions = std::map<std::string, std::uint64_t>;

// The folder of one run and all files in it; docs/run-folder.md describes each. Owned by the trainer's thread, and by
// one process: a second is refused. A line that cannot be written (a full disk) is kept and tried again, with a warning:
// training goes on. flush, save_policy, save_best and write_summary throw RunError.
class RunFolder {
 public:
  // Creates it; throws Error when it exists. wall_time: seconds since 1970, for TensorBoard, log.txt and flushes alone.
  RunFolder(const Plan& plan, std::string command, std::function<double()> wall_time);
  // Opens that of an earlier run where a checkpoint left it, and saves the plan's config, which may be another by now.
  RunFolder(const Plan& plan, std::string command, std::function<double()> wall_time, const LogPositions& positions);

  void metrics(std::int64_t update, std::int64_t env_steps, const Figures& figures, const Diagnostics& diagnostics);
  void episode(const Episode& episode);
  void evaluation(std::int64_t update, std::int64_t env_steps, const Evaluation& result);
  void log(const std::string& text);
  void flush();
  LogPositions positions() const;
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }
  void save_policy(const std::string& safetensors);
  void save_best(const std::string& safetensors);  // that of the best evaluation; empty: there is none
  void write_summary(const RunSummary& summary);

  const std::string& path() const { return path_; }

 private:
  void open(const LogPositions* positions);
  void append(AppendFile& file, const std::string& line);
  void warn(const std::string& text);

  const Plan& plan_;
  std::string path_, command_, events_name_;
  std::function<double()> wall_time_;
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<AppendFile> metrics_, episodes_, evaluations_, log_;
  std::unique_ptr<EventFile> events_;
  std::string line_;
  double flushed_ = 0;  // wall time of the last flush
  std::vector<std::string> warnings_;
  std::set<std::string> told_;  // warnings since the logs were last written whole
};

// Removes an earlier run, as --overwrite does: only a folder that looks like one, and that no process holds. One that is
// not there is fine.
void remove_run(const std::string& path);

// Why a run cannot go on from these positions: a log that is shorter, or was changed. Empty where it can.
std::string logs_fall_short(const std::string& run_dir, const LogPositions& positions);

inline constexpr const char* kCheckpointFolder = "checkpoints";
inline constexpr const char *kPolicyFile = "policy.safetensors", *kBestFile = "best.safetensors";
inline constexpr const char* kWeightsFile = "weights.safetensors";  // the policy of a checkpoint

// Means of every number of metrics.jsonl, or of episodes.jsonl, over the lines in the last fifth of the environment
// steps; of the updates, where there were none.
Figures last_means(const std::string& path);

}  // namespace gipo
