// How a weight or a rate changes over a run; one definition for the processor and for cards.
#pragma once

#include <cmath>

#include "gipo/core/device.h"

namespace gipo {

enum class Schedule { kConstant, kLinear, kCosine };

// What is left of it when t of `span` updates are done: 1 at first, 0 at the end unless it is constant.
GIPO_HD inline double schedule_factor(Schedule schedule, double t, double span) {
  if (schedule == Schedule::kConstant) return 1.0;
  const double share = t / (span > 1.0 ? span : 1.0), done = share < 1.0 ? share : 1.0;
  if (schedule == Schedule::kLinear) return 1.0 - done;
  return 0.5 * (1.0 + std::cos(3.141592653589793 * done));
}

// With a warm-up from zero before it.
GIPO_HD inline double schedule_factor(Schedule schedule, double t, double span, double warmup) {
  return t < warmup ? (t + 1.0) / warmup : schedule_factor(schedule, t - warmup, span - warmup);
}

}  // namespace gipo
