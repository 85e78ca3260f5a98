// Updates of one run, one after the other, without the host. Compiles for host and device.
#pragma once

#include "gipo/population/layout.h"
#include "gipo/population/update.h"

namespace gipo::population {

template <class Team, class T>
GIPO_CARD void copy_array(Team& team, T* to, const T* from, std::size_t count) {
  static_assert(sizeof(T) % 4 == 0);
#if defined(__CUDA_ARCH__)
  auto* const words = reinterpret_cast<std::uint32_t*>(to);
  const auto* const read = reinterpret_cast<const std::uint32_t*>(from);
  for (std::size_t i = static_cast<std::size_t>(team.rank()); i < count * sizeof(T) / 4;
       i += static_cast<std::size_t>(team.size())) {
    words[i] = read[i];
  }
#else
  if (team.rank() == 0) std::memcpy(to, from, count * sizeof(T));
#endif
}

// What outlives a launch, into shared memory and back.
template <class Team, class Copy>
GIPO_CARD void each_kept(Team&, const Run& run, const Copy& copy) {
  const RunSpec& s = run.spec;
  const RunMemory& m = run.memory;
  const Workspace& w = run.work;
  copy(w.state, m.state, 1);
  copy(w.slots, m.slots, s.envs);
  copy(w.policy, m.policy, s.policy.parameters);
  copy(w.critic, m.critic, s.critic.parameters);
  if (s.keeps_average) copy(w.average, m.average, s.policy.parameters);
}

// Whether what one more update may report has room.
GIPO_CARD bool has_room(const RunSpec& s, const RunState& state, std::int64_t rounds) {
  return state.logs < s.most_logs && state.episodes + rounds * s.envs <= s.most_episodes;
}

// Until update `until` is done, or earlier where what is to be reported has no more room, or the run has failed.
template <class Team>
GIPO_CARD void advance(Team& team, const Run& run, std::int64_t until) {
  const RunSpec& s = run.spec;
  each_kept(team, run,
            [&](auto* work, auto* kept, int n) { copy_array(team, work, kept, static_cast<std::size_t>(n)); });
  team.sync();
  RunState& state = run.state();
  if (!state.begun) {
    for (int env = team.rank(); env < s.envs; env += team.size()) {
      start_episode(s.task, run.work.slots[env]);
      observe(s.task, run.work.slots[env], open_row(run, env, 0));
    }
  }
  team.sync();
  if (team.rank() == 0) {
    state.begun = 1;
    state.episodes = state.logs = 0;
  }
  team.sync();
  until = smaller_of(until, s.updates);
  while (state.version < until && state.skipped_in_a_row < s.max_bad_updates && !state.not_finite) {
    const std::int64_t due = env_steps_due(s, state.version) - state.env_steps;
    const std::int64_t rounds = due > 0 ? (due + s.envs - 1) / s.envs : 0;
    bool room = true;
    for (std::int64_t r = 0; r < rounds && room; ++r) {
      room = has_room(s, state, 1);
      if (room) step_all(team, run);
    }
    if (!room || !has_room(s, state, 0) || state.not_finite) break;
    if (team.rank() == 0) set_scales(s, state);
    team.sync();
    update(team, run);
  }
  team.sync();
  each_kept(team, run,
            [&](auto* work, auto* kept, int n) { copy_array(team, kept, work, static_cast<std::size_t>(n)); });
}

}  // namespace gipo::population
