#pragma once

#include <cstdint>
#include <vector>

#include "gipo/data/segment.h"
#include "gipo/run/records.h"
#include "gipo/train/faults.h"

namespace gipo {

// Groups of episodes that were finished (advantage.mode = group).
struct GroupCounts {
  std::uint64_t all = 0;
  std::uint64_t without_variance = 0;  // of these; advantage.filter_groups drops them

  void add(const GroupCounts& later) {
    all += later.all;
    without_variance += later.without_variance;
  }
};

// All that an actor hands back: what it finished since its last report. An actor numbers its reports upwards, and an
// incarnation of it begins anew; whoever takes them does so once each, in the order of their actor (train/intake.h).
struct ActorReport {
  std::uint64_t actor = 0;  // the number of its first environment
  std::uint64_t incarnation = 0, sequence = 0;
  std::int64_t steps = 0;         // of all its environments
  std::vector<Segment> segments;  // closed, and every number in them finite
  std::vector<Episode> episodes;
  Rejections rejections;  // segments that are not here
  GroupCounts groups;     // not sent to other processes, which have none
};

}  // namespace gipo
