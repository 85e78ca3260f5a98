#include "gipo/train/intake.h"

#include <fmt/format.h>

#include "gipo/core/error.h"
#include "gipo/replay/replay_buffer.h"

namespace gipo {

bool Intake::take_new(const ActorReport& report) {
  check(report);
  const std::lock_guard lock(mutex_);
  if (report.incarnation < oldest_ || !taken_.take({report.actor, report.incarnation, report.sequence})) {
    ++passed_over_;
    return false;
  }
  for (const Segment& s : report.segments) {
    if (replay_.insert(s)) continue;
    throw RunError(fmt::format("segment {} of environment {} was in the replay before: its state is not of this run",
                               s.sequence, s.actor));
  }
  arrived_.episodes.insert(arrived_.episodes.end(), report.episodes.begin(), report.episodes.end());
  arrived_.rejections.add(report.rejections);
  arrived_.groups.add(report.groups);
  return true;
}

void Intake::check(const ActorReport& report) const {
  const auto known = [&](std::uint64_t env, const char* what) {
    if (env < envs_) return;
    throw Error(fmt::format("report {} of actor {} (incarnation {}): {} of environment {}, the run has {}",
                            report.sequence, report.actor, report.incarnation, what, env, envs_));
  };
  for (const Segment& s : report.segments) known(s.actor, "a segment");
  for (const Episode& e : report.episodes) known(e.env, "an episode");
}

}  // namespace gipo
