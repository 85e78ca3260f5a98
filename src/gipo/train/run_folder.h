#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gipo/core/files.h"
#include "gipo/objective/diagnostics.h"
#include "gipo/train/actor.h"
#include "gipo/train/evaluator.h"
#include "gipo/train/event_file.h"
#include "gipo/train/plan.h"

namespace gipo {

using Figures = std::vector<std::pair<std::string, double>>;

// What a run came to, for summary.json.
struct RunSummary {
  std::string ended;  // "finished", "interrupted" or "failed: why"
  std::int64_t env_steps = 0, updates = 0, episodes = 0;
  std::int64_t skipped_updates = 0;
  std::uint64_t rejected_segments = 0, replay_size = 0, replay_evicted = 0;
  double seconds = 0;
  ReturnStats final_return, eval_return;
  std::uint32_t weights_fingerprint = 0, replay_fingerprint = 0;
};

// The folder of one run and all files in it; docs/run-folder.md describes each. Created whole or not at all. Owned by
// the trainer's thread. Failures to write throw RunError.
class RunFolder {
 public:
  // Throws Error when the folder exists. wall_time: seconds since 1970, for TensorBoard and log.txt alone.
  RunFolder(const Plan& plan, std::string command, std::function<double()> wall_time);

  void metrics(std::int64_t update, std::int64_t env_steps, const Figures& figures, const Diagnostics& diagnostics);
  void episode(const Episode& episode);
  void evaluation(std::int64_t update, std::int64_t env_steps, const ReturnStats& result);
  void log(const std::string& text);
  void flush();
  void save_policy(const std::string& safetensors);
  void write_summary(const RunSummary& summary);

  const std::string& path() const { return path_; }

 private:
  const Plan& plan_;
  std::string path_, command_;
  std::function<double()> wall_time_;
  std::unique_ptr<AppendFile> metrics_, episodes_, evaluations_, log_;
  std::unique_ptr<EventFile> events_;
  std::string line_;
};

inline constexpr const char* kPolicyFile = "policy.safetensors";

// Means of every figure of metrics.jsonl over the lines in the last fifth of the environment steps.
Figures window_means(const std::string& metrics_path);

}  // namespace gipo
