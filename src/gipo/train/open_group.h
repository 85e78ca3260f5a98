#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gipo/data/segment.h"
#include "gipo/objective/options.h"

namespace gipo {

// What an environment has played from one start (advantage.mode = group). Segments wait here until the last episode of
// the group has ended: no advantage is known before. At most group_size episodes, so that it is bounded by the time
// limit. One for each environment, owned by its actor.
struct OpenGroup {
  std::int64_t number = 0;           // of the group that is being played: its start follows from it
  std::vector<double> returns;       // of the episodes that have ended, as the learner sees rewards
  std::vector<Segment> segments;     // closed, of these and of the episode that goes on
  std::vector<std::size_t> episode;  // [segments] in `returns`, or the one after

  bool empty() const { return returns.empty() && segments.empty(); }
  void clear();
  void add(Segment&& segment);
  // Of all its segments, once it is whole. Targets are the discounted returns: no critic says what follows a time limit.
  void make_advantages(const AdvantageOptions& options);

  void save(ByteWriter& out) const;
  // Throws Error for what no actor of this run has held.
  void load(ByteReader& in, std::size_t group_size, std::size_t segment_length, const TransitionSpec& spec);
};

}  // namespace gipo
