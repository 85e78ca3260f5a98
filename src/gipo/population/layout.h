// Where the arrays of a run lie, in memory of the card and in a block's shared memory. Compiles for host and device.
#pragma once

#include "gipo/population/card_run.h"

namespace gipo::population {

// Takes arrays one after the other from a piece of memory; from null, to see how much they need.
class Carver {
 public:
  GIPO_HD explicit Carver(char* base) : base_(base) {}
  template <class T>
  GIPO_HD T* take(std::size_t count) {
    T* const array = base_ ? reinterpret_cast<T*>(base_ + bytes_) : nullptr;
    bytes_ += (count * sizeof(T) + 15) / 16 * 16;
    return array;
  }
  GIPO_HD std::size_t bytes() const { return bytes_; }

 private:
  char* base_;
  std::size_t bytes_ = 0;
};

GIPO_HD inline int log_ages_size(const RunSpec& s) { return 2 * s.batch + s.gap_pool; }

// Three pieces: the head, which is copied to the host between launches; the body, which never is; and the report. A hosted
// task has two more, which travel with every step: asked and told.
struct RunPlace {
  std::size_t head = 0, body = 0, report = 0, asked = 0, told = 0;
};

GIPO_HD inline void carve_head(const RunSpec& s, RunMemory& m, Carver& from) {
  const auto policy = static_cast<std::size_t>(s.policy.parameters), d = static_cast<std::size_t>(s.observation);
  m.state = from.take<RunState>(1);
  m.slots = from.take<Slot>(static_cast<std::size_t>(s.envs));
  for (double** moments : {&m.observed_mean, &m.observed_square}) *moments = from.take<double>(d);
  for (float** scale : {&m.mean, &m.inverse_std}) *scale = from.take<float>(d);
  m.policy = from.take<float>(policy);
  m.critic = from.take<float>(static_cast<std::size_t>(s.critic.parameters));
  m.average = from.take<float>(s.keeps_average ? policy : 0);
}

GIPO_HD inline std::size_t most_parameters(const RunSpec& s) {
  return static_cast<std::size_t>(larger_of(s.policy.parameters, s.critic.parameters));
}

GIPO_HD inline int outputs_of(const RunSpec& s) { return s.choices > 0 ? s.choices : s.dims; }

GIPO_HD inline void carve_body(const RunSpec& s, RunMemory& m, Carver& from) {
  const auto rows = static_cast<std::size_t>(s.rows), d = static_cast<std::size_t>(s.observation);
  const auto envs = static_cast<std::size_t>(s.envs), steps = envs * static_cast<std::size_t>(s.segment_length);
  const auto dims = static_cast<std::size_t>(s.dims);
  for (float** moments : {&m.policy_first, &m.policy_second}) {
    *moments = from.take<float>(static_cast<std::size_t>(s.policy.parameters));
  }
  for (float** moments : {&m.critic_first, &m.critic_second, &m.critic_gradient}) {
    *moments = from.take<float>(static_cast<std::size_t>(s.critic.parameters));
  }
  m.segments = from.take<Held>(static_cast<std::size_t>(s.most_segments));
  m.observation = from.take<float>(rows * d);
  m.action = from.take<float>(rows * dims);
  for (float** column : {&m.log_prob, &m.reward}) *column = from.take<float>(rows);
  for (float** column : {&m.advantage, &m.target}) {
    *column = from.take<float>(s.advantages == Advantages::kStored ? rows : 0);
  }
  m.collected = from.take<std::int32_t>(rows);
  m.env_step = from.take<std::int32_t>(rows);
  m.gaps = from.take<std::int32_t>(static_cast<std::size_t>(s.gap_pool));
  for (std::int32_t** array : {&m.order, &m.drawn}) {
    *array = from.take<std::int32_t>(s.rollout_updates > 0 ? static_cast<std::size_t>(s.capacity) : 0);
  }
  m.open_observation = from.take<float>((steps + envs) * d);
  m.open_action = from.take<float>(steps * dims);
  for (float** column : {&m.open_log_prob, &m.open_reward}) *column = from.take<float>(steps);
  m.open_version = from.take<std::int32_t>(steps);
  m.noise = from.take<float>(s.noise_correlation > 0 ? envs * dims : 0);
  m.open_discounted = from.take<float>(s.normalise_rewards ? steps : 0);
  if (s.task != Task::kHosted) m.stepped = from.take<Stepped>(envs);
  const auto n = static_cast<std::size_t>(s.batch),
             outputs = s.shared.outputs ? 0 : n * static_cast<std::size_t>(outputs_of(s));
  m.spare_action = from.take<float>(s.shared.outputs ? 0 : n * dims);
  m.spare_outputs = from.take<float>(outputs);
  m.spare_average_outputs = from.take<float>(s.looks_at_average ? outputs : 0);
  m.spare_gradient = from.take<float>(s.shared.gradient ? 0 : most_parameters(s));
}

GIPO_HD inline void carve_asked(const RunSpec& s, RunMemory& m, Carver& from) {
  if (s.task != Task::kHosted) return;
  m.acting = from.take<std::int32_t>(1);
  m.chosen = from.take<float>(static_cast<std::size_t>(s.envs) * static_cast<std::size_t>(s.dims));
}

GIPO_HD inline void carve_told(const RunSpec& s, RunMemory& m, Carver& from) {
  if (s.task != Task::kHosted) return;
  const auto envs = static_cast<std::size_t>(s.envs), d = static_cast<std::size_t>(s.observation);
  m.stepped = from.take<Stepped>(envs);
  m.seen = from.take<float>(envs * d);
  m.first = from.take<float>(envs * d);
}

GIPO_HD inline void carve_report(const RunSpec& s, RunMemory& m, Carver& from) {
  const auto logs = static_cast<std::size_t>(s.most_logs);
  m.episodes = from.take<Episode>(static_cast<std::size_t>(s.most_episodes));
  m.logs = from.take<LoggedUpdate>(logs);
  m.log_samples = from.take<float>(logs * 4 * static_cast<std::size_t>(s.batch));
  m.log_ages = from.take<std::int32_t>(logs * static_cast<std::size_t>(log_ages_size(s)));
}

// kSpread: what RunSpec::shared says lies where it says; else all is in shared memory, which the compiler then knows.
template <bool kSpread>
GIPO_HD inline Workspace carve_workspace(const RunSpec& s, const RunMemory& m, int threads, Carver& from) {
  Workspace w;
  const auto n = static_cast<std::size_t>(s.batch), policy = static_cast<std::size_t>(s.policy.parameters),
             d = static_cast<std::size_t>(s.observation), outputs = n * static_cast<std::size_t>(outputs_of(s)),
             extra = static_cast<std::size_t>(s.policy.extra);
  const auto place = [&](bool shared, std::size_t count, float* elsewhere) {
    return !kSpread || shared ? from.take<float>(count) : elsewhere;
  };
  w.state = from.take<RunState>(1);
  w.slots = from.take<Slot>(static_cast<std::size_t>(s.envs));
  w.mean = from.take<float>(d);
  w.inverse_std = from.take<float>(d);
  w.policy = place(s.shared.policy, policy, m.policy);
  w.critic = place(s.shared.critic, static_cast<std::size_t>(s.critic.parameters), m.critic);
  w.average = place(s.shared.average, s.keeps_average ? policy : 0, m.average);
  w.gradient = place(s.shared.gradient, most_parameters(s), m.spare_gradient);
  for (int l = 0; l <= kMostLayers; ++l) {
    int stride = 0;
    for (const Net* net : {&s.policy, &s.critic}) {
      if (l < net->count) stride = larger_of(stride, net->layers[l].in_stride);
      if (l == net->count) stride = larger_of(stride, net->layers[l - 1].stride);
    }
    w.samples[l] = from.take<float>(static_cast<std::size_t>(stride) * static_cast<std::size_t>(s.chunk));
  }
  w.parts = from.take<float>(16 * static_cast<std::size_t>(larger_of(threads, 8)));
  w.rows = from.take<int>(n);
  w.stretch_begin = from.take<int>(n);
  w.stretch_length = from.take<int>(n);
  const auto values = static_cast<std::size_t>(larger_of(s.batch, s.segment_length + 1));
  w.value = from.take<float>(values);
  for (float** array : {&w.reward, &w.after, &w.joint, &w.advantage, &w.target, &w.multiplier}) {
    *array = from.take<float>(n);
  }
  w.trust = from.take<float>(s.centred ? n : 0);
  w.importance = from.take<float>(s.centred ? n : 0);
  w.action = place(s.shared.outputs, n * static_cast<std::size_t>(s.dims), m.spare_action);
  w.outputs = place(s.shared.outputs, outputs, m.spare_outputs);
  w.average_outputs = place(s.shared.outputs, s.looks_at_average ? outputs : 0, m.spare_average_outputs);
  w.deviation = from.take<float>(extra * static_cast<std::size_t>(s.chunk));
  w.deviation_sums = from.take<double>(extra);
  w.counts = from.take<int>(4);
  return w;
}

}  // namespace gipo::population
