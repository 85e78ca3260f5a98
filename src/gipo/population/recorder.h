#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gipo/learner/learner_book.h"
#include "gipo/population/card_run.h"
#include "gipo/run/run_folder.h"
#include "gipo/train/faults.h"

namespace gipo {
class Stop;
}

namespace gipo::population {

// Writes the folder of one run from what its card reports: the same files as the trainer's, but for checkpoints. One
// thread at a time.
class Recorder {
 public:
  Recorder(const Plan& plan, const RunSpec& spec, const std::string& command, std::function<double()> wall_time,
           const std::string& card);

  // What a launch reported: episodes, and metrics of the updates to be logged. Throws RunError where the run has failed.
  void take(const char* head, const char* report);
  // After the last update: the policy, its evaluation and the summary. Throws Interrupted where stop asks for it.
  void finish(const char* head, const Rejections& rejections, const Stop& stop, double seconds);
  // The last good weights, and why there are no others.
  void fail(const char* head, const Rejections& rejections, const std::string& why, double seconds);

  std::int64_t updates() const { return updates_; }
  bool done() const { return updates_ == plan_.config.learner.updates; }

 private:
  void log_episode(const Episode& e);
  void log_update(const LoggedUpdate& u, const float* samples, const std::int32_t* ages);
  void diagnose(const LoggedUpdate& u, const float* samples, const std::int32_t* ages);
  RunSummary summary(const char* head, const Rejections& rejections, const std::string& ended, double seconds) const;

  const Plan& plan_;
  const RunSpec& spec_;
  RunFolder folder_;
  const LearnerSetup setup_;
  const bool clips_to_zero_;
  LearnerBook book_;
  Diagnostics diagnostics_;
  Figures figures_;
  std::vector<double> recent_;  // returns of the last 100 episodes, a ring
  std::int64_t episodes_ = 0, updates_ = 0;
  ReturnStats eval_return_;
  FaultCounts eval_faults_;
};

}  // namespace gipo::population
