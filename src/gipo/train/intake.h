#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "gipo/replay/high_water.h"
#include "gipo/train/collect.h"

namespace gipo {

class ReplayBuffer;

// Where the reports of all actors arrive: their segments enter the replay at once, the rest waits for the trainer.
// take may be called from any thread.
//
// Everything counts once, however often a report comes: one whose (incarnation, sequence) is not greater than the last
// that was taken of its actor is passed over as a whole, with its episodes and faults. The reports of one actor must
// thus come in their order; those of different actors may come in any. A report is checked before any of it is taken.
class Intake : public ReportSink {
 public:
  // envs: of the whole run.
  Intake(ReplayBuffer& replay, std::size_t envs) : replay_(replay), envs_(envs) {}

  // Throws Error for a report that no actor of this run made, and RunError where a segment of a new report is an old
  // one: the state of the actor is not of this run then.
  void take(const ActorReport& report) override { take_new(report); }
  // The same; false where it was passed over.
  bool take_new(const ActorReport& report);
  // After a resume: reports of actors that were there before it are passed over. Which of them the run had taken, its
  // checkpoint does not say, unless actors were in other processes: those go on where they were.
  void pass_over_before(std::uint64_t incarnation) { oldest_ = incarnation; }

  struct Arrived {
    std::vector<Episode> episodes;  // in the order of the reports; the trainer empties it
    Rejections rejections;          // of the whole run
    GroupCounts groups;             // likewise
  };
  // While this is held nothing arrives: a checkpoint has each segment with the line of its episode, or neither.
  [[nodiscard]] std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }
  // With that held, or while no actor runs.
  Arrived& arrived() { return arrived_; }
  std::uint64_t passed_over() const { return passed_over_; }  // reports
  HighWater& taken() { return taken_; }                       // of each actor the last report
  std::uint64_t oldest() const { return oldest_; }            // incarnation that is not passed over

 private:
  void check(const ActorReport& report) const;

  ReplayBuffer& replay_;
  const std::size_t envs_;
  std::mutex mutex_;
  HighWater taken_;
  std::uint64_t oldest_ = 0, passed_over_ = 0;
  Arrived arrived_;
};

}  // namespace gipo
