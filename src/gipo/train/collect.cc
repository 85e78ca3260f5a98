#include "gipo/train/collect.h"

#include "gipo/core/stop.h"
#include "gipo/train/actor.h"

namespace gipo {

void collect(Actor& actor, WeightSource& weights, ReportSink& sink, StepLease& lease, const Stop& stop) {
  const auto round = static_cast<std::int64_t>(actor.envs());
  std::int64_t leased = 0;  // since the last report
  bool interrupted = false;
  const auto hand_over = [&] {
    const ActorReport& report = actor.report();
    sink.take(report);
    // After the sink has it: an update that waited for these steps must find their segments.
    lease.end(leased, report.steps);
    leased = 0;
  };
  while (!interrupted && !stop.requested()) {
    const std::optional<std::int64_t> before = lease.begin(round);
    if (!before) break;
    leased += round;
    try {
      actor.step(*weights.newest(), *before);
    } catch (const Interrupted&) {  // what was finished counts
      interrupted = true;
    }
    if (interrupted || sink.due()) hand_over();
  }
  if (leased > 0) hand_over();
}

}  // namespace gipo
