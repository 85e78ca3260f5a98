// Updates of one run, one after the other: without the host, or from one step of its environments to the next. Compiles for
// host and device.
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

// What outlives a launch: copy(place in shared memory, place in the card's, count). What is the same place needs none.
template <class Copy>
GIPO_CARD void each_kept(const Run& run, const Copy& copy) {
  const RunSpec& s = run.spec;
  const RunMemory& m = run.memory;
  const Workspace& w = run.work;
  copy(w.state, m.state, 1);
  copy(w.slots, m.slots, s.envs);
  copy(w.mean, m.mean, s.observation);
  copy(w.inverse_std, m.inverse_std, s.observation);
  copy(w.policy, m.policy, s.policy.parameters);
  copy(w.critic, m.critic, s.critic.parameters);
  if (s.keeps_average) copy(w.average, m.average, s.policy.parameters);
}
template <class Team>
GIPO_CARD void fetch_kept(Team& team, const Run& run) {
  each_kept(run, [&](auto* work, auto* kept, int n) {
    if (work != kept) copy_array(team, work, kept, static_cast<std::size_t>(n));
  });
  team.sync();
}
template <class Team>
GIPO_CARD void store_kept(Team& team, const Run& run) {
  team.sync();
  each_kept(run, [&](auto* work, auto* kept, int n) {
    if (work != kept) copy_array(team, kept, work, static_cast<std::size_t>(n));
  });
}

// Whether what one more update may report has room.
GIPO_CARD bool has_room(const RunSpec& s, const RunState& state, std::int64_t rounds) {
  return state.logs < s.most_logs && state.episodes + rounds * s.envs <= s.most_episodes;
}

// Of so many updates. Ends with a sync.
template <class Team>
GIPO_CARD void begin_launch(Team& team, const Run& run, std::int64_t updates) {
  const RunSpec& s = run.spec;
  RunState& state = run.state();
  for (int env = 0; env < s.envs && !state.begun; ++env) begin_episode(team, run, env);
  team.sync();
  if (team.rank() == 0) {
    state.begun = 1;
    state.episodes = state.logs = 0;
    state.until = smaller_of(state.version + updates, s.updates);
  }
  team.sync();
}

// Updates, until the environments must step: true once their actions are chosen. False where the launch has done its
// updates, what is to be reported has no more room, or the run has failed.
template <class Team>
GIPO_CARD bool proceed(Team& team, const Run& run) {
  const RunSpec& s = run.spec;
  RunState& state = run.state();
  while (state.version < state.until && state.skipped_in_a_row < s.max_bad_updates && !state.not_finite) {
    const std::int64_t left = env_steps_due(s, state.version) - state.env_steps;
    if (left > 0) {
      if (!has_room(s, state, 1)) return false;
      // The scales hold still while a rollout is collected and learned from, so that the first pass is on-policy.
      if (s.rollout_updates > 0 && left == s.capacity) set_scales(team, run);
      act(team, run);
      return !state.not_finite;
    }
    if (!has_room(s, state, 0)) return false;
    if (state.segments == 0) {  // all were dropped
      team.sync();
      if (team.rank() == 0) state.not_finite = 1;
      return false;
    }
    if (s.rollout_updates == 0) set_scales(team, run);
    update(team, run);
  }
  return false;
}

// A launch of a task that steps on the card.
template <class Team>
GIPO_CARD void advance(Team& team, const Run& run, std::int64_t updates) {
  const RunSpec& s = run.spec;
  fetch_kept(team, run);
  begin_launch(team, run, updates);
  while (proceed(team, run)) {
    for (int env = team.rank(); env < s.envs; env += team.size()) {
      Slot& slot = run.work.slots[env];
      run.memory.stepped[env] = step_classic(s, slot, run.memory.open_action[open_step(s, env, slot.length)],
                                             open_row(run, env, slot.length + 1));
    }
    team.sync();
    take_in(team, run);
  }
  store_kept(team, run);
}

// One turn of a hosted task: from what its environments were told to do the last time to what they are asked to do next.
// updates: of a launch that begins; 0: one goes on.
template <class Team>
GIPO_CARD void take_turn(Team& team, const Run& run, std::int64_t updates) {
  RunState& state = run.state();
  fetch_kept(team, run);
  if (updates > 0) begin_launch(team, run, updates);
  if (state.acting) take_in(team, run);
  const bool acts = proceed(team, run);
  team.sync();
  if (team.rank() == 0) *run.memory.acting = state.acting = acts;
  store_kept(team, run);
}

}  // namespace gipo::population
