// Environments of a run on a card, and what they fill: open segments, the replay, reported episodes. Compiles for host and
// device.
#pragma once

#include <cmath>
#include <cstdlib>
#include <limits>

#include "gipo/env/classic/acrobot_physics.h"
#include "gipo/env/classic/cart_pole_physics.h"
#include "gipo/env/classic/mountain_car_continuous_physics.h"
#include "gipo/env/classic/mountain_car_physics.h"
#include "gipo/env/classic/pendulum_physics.h"
#include "gipo/objective/advantage_terms.h"
#include "gipo/policy/distribution_terms.h"
#include "gipo/population/network.h"

namespace gipo::population {

// A run with where it lies.
struct Run {
  const RunSpec& spec;
  RunMemory memory;
  Workspace work;
  GIPO_HD RunState& state() const { return *work.state; }
};

template <class T>
GIPO_CARD bool is_finite(T x) {
  return std::fabs(x) <= std::numeric_limits<T>::max();
}

// f(physics) with the task's.
template <class F>
GIPO_CARD void visit_task(Task task, F&& f) {
  switch (task) {
    case Task::kCartPole:
      return f(cart_pole::Physics{});
    case Task::kAcrobot:
      return f(acrobot::Physics{});
    case Task::kPendulum:
      return f(pendulum::Physics{});
    case Task::kMountainCar:
      return f(mountain_car::Physics{});
    case Task::kMountainCarContinuous:
      return f(mountain_car_continuous::Physics{});
  }
}

// f(physics, state) on a state of the task's own type, which a double holds exactly.
template <class F>
GIPO_CARD void with_state(Task task, Slot& slot, F&& f) {
  visit_task(task, [&](auto physics) {
    using Physics = decltype(physics);
    typename Physics::Real state[Physics::kState];
    for (int i = 0; i < Physics::kState; ++i) state[i] = static_cast<typename Physics::Real>(slot.state[i]);
    f(physics, state);
    for (int i = 0; i < Physics::kState; ++i) slot.state[i] = static_cast<double>(state[i]);
  });
}

// The first state of an episode.
GIPO_CARD void start_episode(Task task, Slot& slot) {
  with_state(task, slot, [&](auto physics, auto* state) { decltype(physics)::start(state, slot.env); });
  slot.steps = 0;
  slot.episode_return = slot.discounted = 0;
}

GIPO_CARD bool observe(Task task, Slot& slot, float* to) {
  bool finite = true;
  with_state(task, slot, [&](auto physics, auto* state) {
    using Physics = decltype(physics);
    double shown[Physics::kObservation];
    Physics::observe(state, shown);
    for (int d = 0; d < Physics::kObservation; ++d) {
      to[d] = static_cast<float>(shown[d]);
      finite = finite && is_finite(to[d]);
    }
  });
  return finite;
}

GIPO_CARD float* open_row(const Run& run, int env, int row) {
  const RunSpec& s = run.spec;
  return run.memory.open_observation +
         (static_cast<std::size_t>(env) * (s.segment_length + 1) + row) * static_cast<std::size_t>(s.observation);
}

GIPO_CARD float scaled_observation(const RunState& state, float value, int d) {
  return within((value - state.mean[d]) * state.inverse_std[d], -state.limit, state.limit);
}

// What the networks see of `count` observations: from(i) is where one lies. Ends with a sync.
template <class Team, class From>
GIPO_CARD void see(Team& team, const Run& run, int count, const From& from) {
  const int d = run.spec.observation, width = run.spec.policy.layers[0].rows,
            stride = run.spec.policy.layers[0].in_stride;
  for (int t = team.rank(); t < count * width; t += team.size()) {
    const int i = t / width, column = t % width;
    const float v = column < d ? scaled_observation(run.state(), from(i)[column], column) : column == d ? 1.0f : 0.0f;
    run.work.samples[0][i * stride + column] = v;
  }
  team.sync();
}

// An action for the task, its log-prob, and the action as the policy has it.
struct Choice {
  float action, log_prob;
  double env_action;
};

GIPO_CARD Choice choose(const RunSpec& s, const float* outputs, const float* log_std, Stream& random) {
  Choice c{};
  if (s.choices > 0) {
    const auto n = static_cast<std::size_t>(s.choices);
    const float norm = log_sum_exp<float>(outputs, nullptr, n);
    double left = random.uniform();
    std::size_t chosen = 0;  // where rounding leaves a rest, it goes to the last
    for (; chosen + 1 < n; ++chosen) {
      left -= std::exp(static_cast<double>(outputs[chosen] - norm));
      if (left < 0) break;
    }
    c.action = static_cast<float>(chosen);
    c.log_prob = outputs[chosen] - norm;
    c.env_action = static_cast<double>(chosen);
    // The last bin is the bound itself, also where rounding would put it beyond.
    if (s.bins > 0) c.env_action = smaller_of(s.low + (s.high - s.low) * c.env_action / (s.bins - 1), s.high);
  } else {
    const float z = static_cast<float>(random.normal());
    c.action = outputs[0] + z * std::exp(log_std[0]);
    c.log_prob = -0.5f * z * z - log_std[0] - kHalfLog2Pi<float>;
    c.env_action = within(s.low + (s.high - s.low) * 0.5 * (static_cast<double>(c.action) + 1.0), s.low, s.high);
  }
  return c;
}

// One step of one environment, by one thread.
GIPO_CARD void step_env(const Run& run, int env, const float* outputs, const float* log_std) {
  const RunSpec& s = run.spec;
  const RunMemory& m = run.memory;
  Slot& slot = run.work.slots[env];
  const int t = slot.length;
  const std::size_t at = static_cast<std::size_t>(env) * s.segment_length + t;
  if (t == 0) slot.first_env_step = static_cast<double>(run.state().env_steps);
  const Choice c = choose(s, outputs, log_std, slot.action);
  ClassicOutcome outcome;
  with_state(s.task, slot,
             [&](auto physics, auto* state) { outcome = decltype(physics)::advance(state, c.env_action); });
  ++slot.steps;
  const float reward = static_cast<float>(outcome.reward * s.reward_scale);
  const bool finite = observe(s.task, slot, open_row(run, env, t + 1));
  if (!finite || !is_finite(c.log_prob) || !is_finite(reward)) run.state().not_finite = 1;
  m.open_action[at] = c.action;
  m.open_log_prob[at] = c.log_prob;
  m.open_reward[at] = reward;
  m.open_version[at] = static_cast<std::int32_t>(run.state().version);
  if (s.normalise_rewards) {
    slot.discounted = s.gamma * slot.discounted + static_cast<double>(reward);
    m.open_discounted[at] = static_cast<float>(slot.discounted);
  }
  slot.length = t + 1;
  slot.terminated = outcome.terminated;
  slot.truncated = slot.steps >= s.time_limit && s.time_limit > 0;
  slot.episode_return += outcome.reward;
}

// Adds the moments of `count` values of one column, as RunningMoments does: merged with their own, around the first.
template <class At>
GIPO_CARD void add_moments(Moments& moments, int column, int count, const At& at) {
  const double from = at(0), n = count, total = moments.count + n;
  double sum = 0, square = 0;
  for (int t = 0; t < count; ++t) {
    const double v = static_cast<double>(at(t)) - from;
    sum += v;
    square += v * v;
  }
  const double offset = sum / n, shift = from + offset - moments.mean[column], share = n / total;
  moments.square[column] += larger_of(0.0, square - offset * sum) + shift * shift * moments.count * share;
  moments.mean[column] += shift * share;
}

// The factor on rewards that these moments of discounted returns give; 0: none yet.
GIPO_CARD float reward_factor(const Moments& returns) {
  if (returns.count < 2) return 0;
  return static_cast<float>(1.0 / std::sqrt(returns.square[0] / returns.count + 1e-8));
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
    const std::size_t open = static_cast<std::size_t>(env) * s.segment_length;
    float factor = 1, limit = HUGE_VALF;
    if (s.normalise_rewards) {  // the segment's own returns count too
      Moments returns = run.state().published_returns;
      add_moments(returns, 0, length, [&](int t) { return run.memory.open_discounted[open + t]; });
      returns.count += length;
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

// The open segment of an environment enters the replay, its moments are added, its episode is reported where it ended, and
// a new segment begins. Ends with a sync.
template <class Team>
GIPO_CARD void close_segment(Team& team, const Run& run, int env) {
  const RunSpec& s = run.spec;
  const RunMemory& m = run.memory;
  RunState& state = run.state();
  Slot& slot = run.work.slots[env];
  const int length = slot.length, d = s.observation;
  const std::size_t open = static_cast<std::size_t>(env) * s.segment_length;
  if (team.rank() == 0) run.work.counts[0] = make_room(run, length);
  team.sync();
  const int row = run.work.counts[0];
  const float* const observed = open_row(run, env, 0);
  for (int t = team.rank(); t <= length; t += team.size()) {
    const int to = (row + t) % s.rows;
    for (int i = 0; i < d; ++i) m.observation[static_cast<std::size_t>(to) * d + i] = observed[t * d + i];
    if (t == length) continue;
    m.action[to] = m.open_action[open + t];
    m.log_prob[to] = m.open_log_prob[open + t];
    m.reward[to] = m.open_reward[open + t];
    m.collected[to] = m.open_version[open + t];
    m.env_step[to] = static_cast<std::int32_t>(slot.first_env_step) + t * s.envs;
  }
  for (int i = team.rank(); i < d; i += team.size()) {
    add_moments(state.observed, i, length, [&](int t) { return observed[t * d + i]; });
  }
  if (s.advantages == Advantages::kStored) store_advantages(team, run, env, row);
  team.sync();
  if (team.rank() == 0) {
    state.observed.count += length;
    if (s.normalise_rewards) {
      add_moments(state.returns, 0, length, [&](int t) { return m.open_discounted[open + t]; });
      state.returns.count += length;
    }
    const int last = (state.first_segment + state.segments++) % s.most_segments;
    m.segments[last] = {row, slot.terminated ? -length : length};
    float* const first = open_row(run, env, 0);
    if (slot.terminated || slot.truncated) {
      m.episodes[state.episodes++] = {slot.episode_return,
                                      slot.episode++,
                                      state.env_steps + s.envs,
                                      state.version,
                                      env,
                                      slot.steps,
                                      slot.terminated,
                                      0};
      start_episode(s.task, slot);
      observe(s.task, slot, first);
    } else {
      for (int i = 0; i < d; ++i) first[i] = observed[length * d + i];
    }
    slot.length = slot.terminated = slot.truncated = 0;
  }
  team.sync();
}

// One step of every environment.
template <class Team>
GIPO_CARD void step_all(Team& team, const Run& run) {
  const RunSpec& s = run.spec;
  const Workspace& w = run.work;
  const float* const weights = s.publishes_average ? w.average : w.policy;
  const int stride = s.policy.layers[s.policy.count - 1].stride;
  for (int begin = 0; begin < s.envs; begin += s.chunk) {
    const int count = smaller_of(s.chunk, s.envs - begin);
    see(team, run, count, [&](int i) { return open_row(run, begin + i, w.slots[begin + i].length); });
    forward(team, s.policy, weights, w.samples, count, s.activation);
    for (int i = team.rank(); i < count; i += team.size()) {
      step_env(run, begin + i, w.samples[s.policy.count] + i * stride, weights + s.policy.extra_at);
    }
    team.sync();
  }
  for (int env = 0; env < s.envs; ++env) {
    const Slot& slot = w.slots[env];
    if (slot.length == s.segment_length || slot.terminated || slot.truncated) close_segment(team, run, env);
  }
  if (team.rank() == 0) run.state().env_steps += s.envs;
  team.sync();
}

// Environment steps that must have been taken before the next update.
GIPO_CARD std::int64_t env_steps_due(const RunSpec& s, std::int64_t update) {
  return s.warmup + static_cast<std::int64_t>(std::floor(static_cast<double>(update) * s.env_steps_per_update));
}

// What networks see of observations and rewards, from all that the replay was ever given; by one thread.
GIPO_CARD void set_scales(const RunSpec& s, RunState& state) {
  if (s.normalise_observations && state.observed.count >= 2) {
    state.limit = kScaleLimit;
    for (int d = 0; d < s.observation; ++d) {
      state.mean[d] = static_cast<float>(state.observed.mean[d]);
      state.inverse_std[d] =
          static_cast<float>(1.0 / std::sqrt(state.observed.square[d] / state.observed.count + 1e-8));
    }
  }
  if (!s.normalise_rewards) return;
  state.published_returns = state.returns;
  if (const float factor = reward_factor(state.returns); factor > 0) {
    state.reward_factor = factor;
    state.reward_limit = kScaleLimit;
  }
}

}  // namespace gipo::population
