// What a run on a card does around the steps of its environments: it acts, and takes in what came of it: open segments, the
// replay, reported episodes. Compiles for host and device.
#pragma once

#include <cmath>
#include <cstdlib>

#include "gipo/objective/advantage_terms.h"
#include "gipo/policy/distribution_terms.h"
#include "gipo/population/classic_step.h"
#include "gipo/population/network.h"

namespace gipo::population {

// A run with where it lies.
struct Run {
  const RunSpec& spec;
  RunMemory memory;
  Workspace work;
  GIPO_HD RunState& state() const { return *work.state; }
};

GIPO_CARD float* open_row(const Run& run, int env, int row) {
  const RunSpec& s = run.spec;
  return run.memory.open_observation +
         (static_cast<std::size_t>(env) * (s.segment_length + 1) + row) * static_cast<std::size_t>(s.observation);
}

// Step t of the open segment of an environment, among those of all.
GIPO_CARD std::size_t open_step(const RunSpec& s, int env, int t) {
  return static_cast<std::size_t>(env) * s.segment_length + t;
}

GIPO_CARD float scaled_observation(const Workspace& w, float value, int d) {
  const float limit = w.state->limit;
  return within((value - w.mean[d]) * w.inverse_std[d], -limit, limit);
}

// What the networks see of `count` observations: from(i) is where one lies. Ends with a sync.
template <class Team, class From>
GIPO_CARD void see(Team& team, const Run& run, int count, const From& from) {
  const int d = run.spec.observation, width = run.spec.policy.layers[0].rows,
            stride = run.spec.policy.layers[0].in_stride;
  for (int t = team.rank(); t < count * width; t += team.size()) {
    const int i = t / width, column = t % width;
    const float v = column < d ? scaled_observation(run.work, from(i)[column], column) : column == d ? 1.0f : 0.0f;
    run.work.samples[0][i * stride + column] = v;
  }
  team.sync();
}

// Noise of dimension a of an environment's next action, as LastingNoise has it.
GIPO_CARD float next_noise(const Run& run, int env, int a) {
  const double correlation = run.spec.noise_correlation, fresh = run.work.slots[env].action.normal();
  if (correlation == 0) return static_cast<float>(fresh);
  float& last = run.memory.noise[env * run.spec.dims + a];
  last = static_cast<float>(lasting_noise(correlation, static_cast<double>(last), fresh));
  return last;
}

// An action of one environment, by one thread: chosen from the outputs that the policy has for it.
GIPO_CARD void choose(const Run& run, int env, const float* outputs, const float* log_std) {
  const RunSpec& s = run.spec;
  const RunMemory& m = run.memory;
  Slot& slot = run.work.slots[env];
  const std::size_t at = open_step(s, env, slot.length);
  float* const action = m.open_action + at * s.dims;
  float log_prob = 0;
  if (s.choices > 0) {
    const auto n = static_cast<std::size_t>(s.choices);
    const float norm = log_sum_exp<float>(outputs, nullptr, n);
    double left = slot.action.uniform();
    std::size_t chosen = 0;  // where rounding leaves a rest, it goes to the last
    for (; chosen + 1 < n; ++chosen) {
      left -= std::exp(static_cast<double>(outputs[chosen] - norm));
      if (left < 0) break;
    }
    action[0] = static_cast<float>(chosen);
    log_prob = outputs[chosen] - norm;
  } else {
    for (int a = 0; a < s.dims; ++a) {
      const float z = next_noise(run, env, a);
      action[a] = outputs[a] + z * std::exp(log_std[a]);
      log_prob += -0.5f * z * z - log_std[a] - kHalfLog2Pi<float>;
    }
  }
  if (slot.length == 0) slot.first_env_step = static_cast<double>(run.state().env_steps);
  m.open_log_prob[at] = log_prob;
  m.open_version[at] = static_cast<std::int32_t>(run.state().version);
  if (!is_finite(log_prob)) run.state().not_finite = 1;
  if (s.task != Task::kHosted) return;
  for (int a = 0; a < s.dims; ++a) m.chosen[env * s.dims + a] = action[a];
}

// An action for every environment. Ends with a sync.
template <class Team>
GIPO_CARD void act(Team& team, const Run& run) {
  const RunSpec& s = run.spec;
  const Workspace& w = run.work;
  const float* const weights = s.publishes_average ? w.average : w.policy;
  const int stride = s.policy.layers[s.policy.count - 1].stride;
  for (int begin = 0; begin < s.envs; begin += s.chunk) {
    const int count = smaller_of(s.chunk, s.envs - begin);
    see(team, run, count, [&](int i) { return open_row(run, begin + i, w.slots[begin + i].length); });
    forward(team, s.policy, weights, w.samples, count, s.activation);
    for (int i = team.rank(); i < count; i += team.size()) {
      choose(run, begin + i, w.samples[s.policy.count] + i * stride, weights + s.policy.extra_at);
    }
    team.sync();
  }
}

// What a step came to, by one thread; the observation that it led to is in its row.
GIPO_CARD void take_step(const Run& run, int env) {
  const RunSpec& s = run.spec;
  const Stepped& step = run.memory.stepped[env];
  Slot& slot = run.work.slots[env];
  slot.faults += step.fault + step.bad_starts;
  ++slot.steps;
  if (step.fault) return;
  const std::size_t at = open_step(s, env, slot.length);
  const float reward = static_cast<float>(step.reward * s.reward_scale);
  run.memory.open_reward[at] = reward;
  if (s.normalise_rewards) {
    slot.discounted = s.gamma * slot.discounted + static_cast<double>(reward);
    run.memory.open_discounted[at] = static_cast<float>(slot.discounted);
  }
  ++slot.length;
  slot.terminated = step.terminated;
  slot.truncated = step.truncated;
  slot.episode_return += step.reward;
}

// Adds the moments of `count` values to those of `before`, as RunningMoments does: merged with their own, around the first.
template <class At>
GIPO_CARD void add_moments(double before, double& mean, double& square, int count, const At& at) {
  const double from = at(0), n = count, total = before + n;
  double sum = 0, squares = 0;
  for (int t = 0; t < count; ++t) {
    const double v = static_cast<double>(at(t)) - from;
    sum += v;
    squares += v * v;
  }
  const double offset = sum / n, shift = from + offset - mean, share = n / total;
  square += larger_of(0.0, squares - offset * sum) + shift * shift * before * share;
  mean += shift * share;
}
template <class At>
GIPO_CARD void add_moments(Moments& moments, int count, const At& at) {
  add_moments(moments.count, moments.mean, moments.square, count, at);
  moments.count += count;
}

// The factor on rewards that these moments of discounted returns give; 0: none yet.
GIPO_CARD float reward_factor(const Moments& returns) {
  if (returns.count < 2) return 0;
  return static_cast<float>(1.0 / std::sqrt(returns.square / returns.count + 1e-8));
}
inline constexpr float kScaleLimit = 10.0f;  // of normalised observations and rewards

// Room in the replay for a segment, and its first row; by one thread.
GIPO_CARD int make_room(const Run& run, int length) {
  const RunSpec& s = run.spec;
  RunState& state = run.state();
  while (state.size + length > s.capacity || state.rows_used + length + 1 > s.rows ||
         state.segments == s.most_segments) {
    const int oldest = std::abs(run.memory.segments[state.first_segment].length);
    state.size -= oldest;
    state.evicted += oldest;
    state.rows_used -= oldest + 1;
    state.first_segment = state.first_segment + 1 == s.most_segments ? 0 : state.first_segment + 1;
    --state.segments;
  }
  const int row = state.next_row;
  state.next_row = (row + length + 1) % s.rows;
  state.rows_used += length + 1;
  state.size += length;
  return row;
}

// Generalised advantages of a closed segment by the critic of now, for the rows of the ring from `row` on. Ends with a sync.
template <class Team>
GIPO_CARD void store_advantages(Team& team, const Run& run, int env, int row) {
  const RunSpec& s = run.spec;
  const Slot& slot = run.work.slots[env];
  const int length = slot.length;
  for (int begin = 0; begin <= length; begin += s.chunk) {
    const int count = smaller_of(s.chunk, length + 1 - begin);
    see(team, run, count, [&](int i) { return open_row(run, env, begin + i); });
    forward(team, s.critic, run.work.critic, run.work.samples, count, s.activation);
    const int stride = s.critic.layers[s.critic.count - 1].stride;
    for (int i = team.rank(); i < count; i += team.size()) {
      run.work.value[begin + i] = run.work.samples[s.critic.count][i * stride];
    }
    team.sync();
  }
  if (team.rank() == 0) {
    const std::size_t open = open_step(s, env, 0);
    float factor = 1, limit = HUGE_VALF;
    if (s.normalise_rewards) {  // the segment's own returns count too
      Moments returns = run.state().published_returns;
      add_moments(returns, length, [&](int t) { return run.memory.open_discounted[open + t]; });
      if (const float f = reward_factor(returns); f > 0) factor = f, limit = kScaleLimit;
    }
    GaeNext<float> next{slot.terminated ? 0.0f : run.work.value[length]};
    for (int t = length - 1; t >= 0; --t) {
      const float reward = within(factor * run.memory.open_reward[open + t], -limit, limit);
      const AdvantageTerm<float> term =
          gae_step<float>(reward, run.work.value[t], static_cast<float>(s.gamma), static_cast<float>(s.lambda), next);
      run.memory.advantage[(row + t) % s.rows] = term.advantage;
      run.memory.target[(row + t) % s.rows] = term.target;
    }
  }
  team.sync();
}

// A new episode of an environment: its first observation into the first row. Ends with a sync.
template <class Team>
GIPO_CARD void begin_episode(Team& team, const Run& run, int env) {
  const RunSpec& s = run.spec;
  Slot& slot = run.work.slots[env];
  float* const row = open_row(run, env, 0);
  if (s.task == Task::kHosted) {
    for (int i = team.rank(); i < s.observation; i += team.size()) row[i] = run.memory.first[env * s.observation + i];
  } else if (team.rank() == 0) {
    start_classic(s.task, slot, row);
  }
  if (team.rank() == 0) {
    slot.steps = 0;
    slot.episode_return = slot.discounted = 0;
    for (int a = 0; s.noise_correlation > 0 && a < s.dims; ++a) {
      run.memory.noise[env * s.dims + a] = static_cast<float>(slot.action.normal());
    }
  }
  team.sync();
}

// The open segment of an environment enters the replay, its moments are added, its episode is reported where it ended, and
// a new segment begins. Ends with a sync.
template <class Team>
GIPO_CARD void close_segment(Team& team, const Run& run, int env) {
  const RunSpec& s = run.spec;
  const RunMemory& m = run.memory;
  RunState& state = run.state();
  Slot& slot = run.work.slots[env];
  const int length = slot.length, d = s.observation;
  const bool over = slot.terminated || slot.truncated;
  const std::size_t open = open_step(s, env, 0);
  if (team.rank() == 0) run.work.counts[0] = make_room(run, length);
  team.sync();
  const int row = run.work.counts[0];
  float* const observed = open_row(run, env, 0);
  for (int k = team.rank(); k < (length + 1) * d; k += team.size()) {
    m.observation[static_cast<std::size_t>((row + k / d) % s.rows) * d + k % d] = observed[k];
  }
  for (int t = team.rank(); t < length; t += team.size()) {
    const int to = (row + t) % s.rows;
    for (int a = 0; a < s.dims; ++a) {
      m.action[static_cast<std::size_t>(to) * s.dims + a] = m.open_action[(open + t) * s.dims + a];
    }
    m.log_prob[to] = m.open_log_prob[open + t];
    m.reward[to] = m.open_reward[open + t];
    m.collected[to] = m.open_version[open + t];
    m.env_step[to] = static_cast<std::int32_t>(slot.first_env_step) + t * s.envs;
  }
  for (int i = team.rank(); i < d; i += team.size()) {
    add_moments(state.observed, m.observed_mean[i], m.observed_square[i], length,
                [&](int t) { return observed[t * d + i]; });
  }
  if (s.advantages == Advantages::kStored) store_advantages(team, run, env, row);
  team.sync();
  if (team.rank() == 0) {
    state.observed += length;
    if (s.normalise_rewards) add_moments(state.returns, length, [&](int t) { return m.open_discounted[open + t]; });
    const int last = (state.first_segment + state.segments++) % s.most_segments;
    m.segments[last] = {row, slot.terminated ? -length : length};
    if (over) {
      m.episodes[state.episodes++] = {slot.episode_return,
                                      slot.episode++,
                                      state.env_steps + s.envs,
                                      state.version,
                                      env,
                                      slot.steps,
                                      slot.terminated,
                                      0};
    }
    slot.length = slot.terminated = slot.truncated = 0;
    slot.faults = m.stepped[env].bad_starts;
  }
  if (over) return begin_episode(team, run, env);
  for (int i = team.rank(); i < d; i += team.size()) observed[i] = observed[length * d + i];
  team.sync();
}

// Every environment has stepped: what came of it. Ends with a sync.
template <class Team>
GIPO_CARD void take_in(Team& team, const Run& run) {
  const RunSpec& s = run.spec;
  const RunMemory& m = run.memory;
  const Workspace& w = run.work;
  RunState& state = run.state();
  const int d = s.observation;
  for (int k = team.rank(); s.task == Task::kHosted && k < s.envs * d; k += team.size()) {
    open_row(run, k / d, w.slots[k / d].length + 1)[k % d] = m.seen[k];
  }
  team.sync();
  for (int env = team.rank(); env < s.envs; env += team.size()) take_step(run, env);
  team.sync();
  for (int env = 0; env < s.envs; ++env) {
    const Slot& slot = w.slots[env];
    const Stepped& step = m.stepped[env];
    if (step.fault) {  // the open segment is dropped
      if (team.rank() == 0) w.slots[env].length = 0;
      begin_episode(team, run, env);
    } else if (slot.length == s.segment_length || slot.terminated || slot.truncated) {
      close_segment(team, run, env);
    }
  }
  if (team.rank() == 0) {
    for (int env = 0; env < s.envs; ++env) {
      const int faults = m.stepped[env].fault + m.stepped[env].bad_starts;
      state.rejected += faults;
      w.slots[env].episode += faults;
      if (w.slots[env].faults >= s.most_faults) state.not_finite = 1;
    }
    state.env_steps += s.envs;
  }
  team.sync();
  if (s.rollout_updates == 0 || state.env_steps % s.capacity != 0) return;
  for (int env = 0; env < s.envs; ++env) {  // the rollout ends here
    if (w.slots[env].length > 0) close_segment(team, run, env);
  }
}

// Environment steps that must have been taken before the next update.
GIPO_CARD std::int64_t env_steps_due(const RunSpec& s, std::int64_t update) {
  if (s.rollout_updates > 0) return (update / s.rollout_updates + 1) * s.capacity;
  return s.warmup + static_cast<std::int64_t>(std::floor(static_cast<double>(update) * s.env_steps_per_update));
}

// What networks see of observations and rewards, from all that the replay was ever given. Ends with a sync.
template <class Team>
GIPO_CARD void set_scales(Team& team, const Run& run) {
  const RunSpec& s = run.spec;
  RunState& state = run.state();
  if (s.normalise_observations && state.observed >= 2) {
    for (int d = team.rank(); d < s.observation; d += team.size()) {
      run.work.mean[d] = static_cast<float>(run.memory.observed_mean[d]);
      run.work.inverse_std[d] =
          static_cast<float>(1.0 / std::sqrt(run.memory.observed_square[d] / state.observed + 1e-8));
    }
    if (team.rank() == 0) state.limit = kScaleLimit;
  }
  if (s.normalise_rewards && team.rank() == 0) {
    state.published_returns = state.returns;
    if (const float factor = reward_factor(state.returns); factor > 0) {
      state.reward_factor = factor;
      state.reward_limit = kScaleLimit;
    }
  }
  team.sync();
}

}  // namespace gipo::population
