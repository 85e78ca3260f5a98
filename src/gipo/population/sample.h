// Batches from the replay of a run on a card. Compiles for host and device.
#pragma once

#include "gipo/population/collect.h"

namespace gipo::population {

inline constexpr int kDrawn = 32;  // segments drawn at once

GIPO_CARD const Held& held(const Run& run, std::uint64_t index) {
  const int at = run.state().first_segment + static_cast<int>(index);
  return run.memory.segments[at < run.spec.most_segments ? at : at - run.spec.most_segments];
}

// A uniform step: rejection makes every step equally likely, whatever the length of its segment.
struct Step {
  Held segment;
  int offset;
};
GIPO_CARD Step uniform_step(const Run& run, Stream& random) {
  while (true) {
    const std::uint64_t record = random.below(static_cast<std::uint64_t>(run.state().segments));
    const int offset = static_cast<int>(random.below(static_cast<std::uint64_t>(run.spec.segment_length)));
    const Held h = held(run, record);
    if (offset < std::abs(h.length)) return {h, offset};
  }
}

// Adds one stretch from `offset` of a segment on; returns the samples in the batch then. By one thread.
GIPO_CARD int add_stretch(const Run& run, const Held& h, int offset, int at, int& stretches) {
  const int length = std::abs(h.length), count = smaller_of(length - offset, run.spec.batch - at);
  run.work.stretch_begin[stretches] = at;
  run.work.stretch_length[stretches] = h.length < 0 && offset + count == length ? -count : count;
  run.work.rows[at] = (h.row + offset) % run.spec.rows;
  ++stretches;
  return at + count;
}

// As ReplayBuffer::sample_segments: segments chosen uniformly and laid end to end, entered at a uniform step. Returns the
// number of stretches. Ends with a sync.
template <class Team>
GIPO_CARD int sample_segments(Team& team, const Run& run) {
  RunState& state = run.state();
  const Workspace& w = run.work;
  Held* const drawn = reinterpret_cast<Held*>(w.parts);  // [kDrawn]
  int* const filled = w.counts;                          // samples, stretches
  if (team.rank() == 0) {
    const Step first = uniform_step(run, state.replay);
    filled[1] = 0;
    filled[0] = add_stretch(run, first.segment, first.offset, 0, filled[1]);
  }
  team.sync();
  while (filled[0] < run.spec.batch) {
    for (int i = team.rank(); i < kDrawn; i += team.size()) {
      Stream random = state.replay.after(static_cast<std::uint64_t>(i));
      drawn[i] = held(run, random.below(static_cast<std::uint64_t>(state.segments)));
    }
    team.sync();
    if (team.rank() == 0) {
      int used = 0;
      for (; used < kDrawn && filled[0] < run.spec.batch; ++used) {
        filled[0] = add_stretch(run, drawn[used], 0, filled[0], filled[1]);
      }
      state.replay = state.replay.after(static_cast<std::uint64_t>(used));
    }
    team.sync();
  }
  // From the first row of each stretch to those of its steps. The trainer's loop draws once more before it sees its end.
  const int stretches = filled[1];
  if (team.rank() == 0) state.replay = state.replay.after(1);
  for (int t = team.rank(), of = 0; t < run.spec.batch; t += team.size()) {
    while (of + 1 < stretches && w.stretch_begin[of + 1] <= t) ++of;
    const int begin = w.stretch_begin[of];
    if (t != begin) w.rows[t] = (w.rows[begin] + t - begin) % run.spec.rows;
  }
  team.sync();
  return stretches;
}

// Single steps. Every sample has a stream of its own. Ends with a sync.
template <class Team>
GIPO_CARD void sample_steps(Team& team, const Run& run) {
  for (int i = team.rank(); i < run.spec.batch; i += team.size()) {
    Stream random{run.state().replay.key + 0x9e3779b97f4a7c15ull * static_cast<std::uint64_t>(i + 1),
                  run.state().replay.position};
    const Step step = uniform_step(run, random);
    run.work.rows[i] = (step.segment.row + step.offset) % run.spec.rows;
  }
  team.sync();
  if (team.rank() == 0) run.state().replay.position += 1 << 20;  // beyond what any sample has drawn
  team.sync();
}

// All steps of the replay in a new order, as ReplayBuffer::next_of_epoch has it. Ends with a sync.
template <class Team>
GIPO_CARD void shuffle_rollout(Team& team, const Run& run) {
  RunState& state = run.state();
  std::int32_t *const order = run.memory.order, *const drawn = run.memory.drawn;
  const int size = state.size;
  for (int i = size - team.rank(); i > 1; i -= team.size()) {
    Stream random = state.replay.after(static_cast<std::uint64_t>(size - i));
    drawn[i - 1] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(i)));
  }
  team.sync();
  if (team.rank() == 0) {
    int at = 0;
    for (int segment = 0; segment < state.segments; ++segment) {
      const Held h = held(run, static_cast<std::uint64_t>(segment));
      for (int t = 0; t < std::abs(h.length); ++t) order[at++] = (h.row + t) % run.spec.rows;
    }
    for (int i = size; i > 1; --i) {
      const std::int32_t other = order[drawn[i - 1]];
      order[drawn[i - 1]] = order[i - 1];
      order[i - 1] = other;
    }
    state.replay = state.replay.after(static_cast<std::uint64_t>(larger_of(size - 1, 0)));
    state.order_size = size;
    state.order_at = 0;
    state.ordered = state.env_steps;
  }
  team.sync();
}

// The next steps of a pass over the rollout. Ends with a sync.
template <class Team>
GIPO_CARD void sample_pass(Team& team, const Run& run) {
  RunState& state = run.state();
  for (int at = 0; at < run.spec.batch;) {
    if (state.order_at == state.order_size || state.ordered != state.env_steps) shuffle_rollout(team, run);
    const int from = state.order_at, count = smaller_of(run.spec.batch - at, state.order_size - from);
    for (int i = team.rank(); i < count; i += team.size()) run.work.rows[at + i] = run.memory.order[from + i];
    team.sync();
    if (team.rank() == 0) state.order_at = from + count;
    team.sync();
    at += count;
  }
}

}  // namespace gipo::population
