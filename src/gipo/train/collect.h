#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "gipo/policy/weights.h"
#include "gipo/train/actor_report.h"

namespace gipo {

class Actor;
class Stop;

// What an actor needs around it, beside its spec. Each has an implementation in the process of the learner; one that
// speaks to another process or host makes an actor live there, and changes nothing in it. All may throw Interrupted.

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual std::shared_ptr<const Weights> newest() = 0;
};

class ReportSink {
 public:
  virtual ~ReportSink() = default;
  // The report is the actor's, which fills it again after the call.
  virtual void take(const ActorReport& report) = 0;
  // Whether it wants a report after this round. What is not reported stays with the actor and is in the next one.
  virtual bool due() { return true; }
};

// Says when environment steps may be taken. Steps that are leased count as begun; an actor that is lost has its lease
// ended for it, with none taken, so that others may take those steps.
class StepLease {
 public:
  virtual ~StepLease() = default;
  // Waits until so many steps may begin. The count of the run's steps before them; none: no more are wanted.
  virtual std::optional<std::int64_t> begin(std::int64_t steps) = 0;
  // taken: how many of the leased steps there were; fewer where the actor was interrupted.
  virtual void end(std::int64_t leased, std::int64_t taken) = 0;
};

// The life of an actor, until no more steps are leased or it is to stop: lease a round, step with the newest weights,
// hand over the report.
void collect(Actor& actor, WeightSource& weights, ReportSink& sink, StepLease& lease, const Stop& stop);

}  // namespace gipo
