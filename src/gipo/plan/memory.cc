#include "gipo/plan/memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/env/bridge/bridge.h"
#include "gipo/learner/cuda_learner.h"
#include "gipo/replay/replay_snapshot.h"

namespace gipo {
namespace {

// Measured: pages of the program that are first used while it trains, logs and their buffers; and of a thread its stack
// and its corner of the heap.
constexpr double kGrowth = 3e6, kThread = 2e5;

class Count {
 public:
  explicit Count(const Plan& plan) : p_(plan), setup_(plan.learner_setup()) {}

  MemoryNeed make() {
    const PolicyMemory learner = learner_memory(setup_);
    const Config& c = p_.config;
    const std::string capacity = fmt::format("replay.capacity = {}", p_.capacity),
                      hidden = fmt::format("policy.hidden = [{}]", fmt::join(c.policy.hidden, ", ")),
                      batch_size = fmt::format("learner.batch_size = {}", c.learner.batch_size),
                      actors_option = fmt::format("staleness.actors = {}", p_.actors),
                      count = fmt::format("env.count = {}", p_.envs_per_actor),
                      length = fmt::format("replay.segment_length = {}", p_.segment_length),
                      episodes = fmt::format("eval.episodes = {}", c.eval.episodes),
                      processes = fmt::format("env.workers = {}", p_.workers),
                      group = fmt::format("advantage.group_size = {}", c.advantage.group_size);
    MemoryNeed need;
    need.parts = {
        {"program", resident_bytes() + kGrowth + kThread * threads(), {}},
        {"replay", replay(), {capacity}},
        {"learner", learner.held, {hidden, batch_size}},
        {"batches", batches(), {batch_size}},
        {"weights", snapshots() * weights(), {hidden}},
        {"actors", actors(),
         in_open_group() > 0 ? std::vector{group, actors_option, count} : std::vector{actors_option, count, length}},
        {"environments", environments(), {actors_option, count, episodes}},
        {"workers", workers(), {processes, actors_option, count}},
        {"checkpoint", checkpoint(), {hidden}},
    };
    // The first weights are made before what stands below the learner.
    double later = 0;
    for (std::size_t i = 3; i < need.parts.size(); ++i) later += need.parts[i].bytes;
    need.parts.push_back({"first_weights", std::max(0.0, learner.at_first - later), {hidden}});
    return need;
  }

 private:
  bool async() const { return p_.config.run.mode == RunMode::kAsync; }
  bool bridged() const { return is_bridged(p_.env.id); }
  double envs() const { return static_cast<double>(p_.envs()); }
  double evaluated() const { return static_cast<double>(evaluated_together(p_.config.eval.episodes)); }
  double parameters() const {
    return static_cast<double>(parameter_count(p_.model, Part::kPolicy) + parameter_count(p_.model, Part::kCritic));
  }
  double weights() const { return 4 * parameters() + 8 * static_cast<double>(p_.env.observation_size); }
  double threads() const {
    return async() ? static_cast<double>(p_.actors) + 3 : static_cast<double>(p_.config.run.threads);
  }
  // No segment is longer than an episode.
  double longest() const {
    const auto length = static_cast<double>(p_.segment_length);
    return p_.env.time_limit > 0 ? std::min(length, static_cast<double>(p_.env.time_limit)) : length;
  }

  // Segments of an episode are as long as they can be but for the last.
  double replay() const {
    ReplayShape shape = p_.replay_shape();
    shape.segment_length = static_cast<std::size_t>(longest());
    return ReplayBuffer::bytes_needed(shape);
  }

  double batches() const {
    return (async() ? 2 : 1) *
           Batch::bytes_needed(static_cast<std::size_t>(p_.config.learner.batch_size), p_.transition());
  }

  // The newest, and those that actors and the evaluator still hold.
  // Those that actors and learner have; the best so far, and one that takes its place.
  double snapshots() const {
    const double best = p_.config.eval.every_updates > 0 ? 2 : 0;
    return best + (async() ? 4 + std::min(4.0, static_cast<double>(p_.actors)) : 2);
  }

  double segment() const { return Segment::bytes_needed(p_.segment_length, p_.transition()); }

  // Segments of an environment that wait for the last episode of their group; one of each episode where its length is
  // not known.
  double in_open_group() const {
    if (p_.config.advantage.mode != AdvantageMode::kGroup) return 0;
    const double episode = static_cast<double>(p_.env.time_limit) / static_cast<double>(p_.segment_length);
    return static_cast<double>(p_.config.advantage.group_size) * std::max(1.0, std::ceil(episode));
  }

  double actors() const {
    const std::size_t rows = std::max(p_.envs_per_actor, p_.segment_length + 1);
    // Of every environment the open one, and those that are finished before the replay takes them.
    const double rounds =
        async() ? 1
                : std::min(static_cast<double>(p_.rounds_between_drains()), static_cast<double>(p_.warmup) / envs());
    const double held = 1 + std::max(1.0, std::ceil(rounds / longest())) + in_open_group();
    return static_cast<double>(p_.actors) * policy_memory(p_.model, {rows}).held + envs() * held * segment() +
           policy_memory(p_.model, {static_cast<std::size_t>(evaluated())}).held;
  }

  // A training environment each, and those of an evaluation.
  double environments() const {
    if (!bridged()) return (envs() + evaluated()) * p_.env.memory.each;
    double fields = 0;  // in memory shared with the workers
    for (const Field& f : p_.env.fields) fields += 2.0 * static_cast<double>(f.bytes());
    return (envs() + evaluated()) * (8.0 * static_cast<double>(p_.env.observation_size) + fields);
  }

  double workers() const {
    if (!bridged()) return 0;
    const auto of = [&](double environments, double wanted) {
      const double processes = bridge_workers(p_.env.id, environments, wanted);
      return processes * p_.env.memory.worker + (environments - processes) * p_.env.memory.each;
    };
    const auto processes = static_cast<double>(p_.workers);
    return p_.env.memory.worker_programs +
           (p_.shared_workers
                ? of(envs(), processes)
                : static_cast<double>(p_.actors) * of(static_cast<double>(p_.envs_per_actor), processes)) +
           of(evaluated(), static_cast<double>(evaluation_workers()));
  }
  static double bridge_workers(const std::string& id, double environments, double wanted) {
    return id.starts_with("envpool:") ? 1 : std::clamp(wanted, 1.0, environments);
  }

  // Copies of what is small; the replay is read where it lies, but for what is evicted meanwhile.
  double checkpoint() const {
    double bytes = weights() + 1e6;
    if (!async() && p_.env.saves_state) bytes += envs() * ((1 + in_open_group()) * segment() + p_.env.memory.each / 4);
    if (p_.sampling == Sampling::kEpochs) bytes += 16.0 * static_cast<double>(p_.capacity);
    return bytes + std::min(replay(), static_cast<double>(ReplaySnapshot::kBytesKeptAtFirst));
  }

  const Plan& p_;
  LearnerSetup setup_;
};

}  // namespace

double MemoryNeed::total() const {
  double sum = 0;
  for (const Part& part : parts) sum += part.bytes;
  return sum;
}

MemoryNeed memory_need(const Plan& plan) { return Count(plan).make(); }

void refuse_what_does_not_fit(const Plan& plan, const Origins& origins, const MemoryLimit& limit) {
  const LearnerOptions& learner = plan.config.learner;
  if (runs_backend(learner, "cuda") || learner.device != "cpu") check_card(plan.learner_setup());
  MemoryNeed need = memory_need(plan);
  const double total = need.total();
  if (total <= limit.available()) return;
  std::sort(need.parts.begin(), need.parts.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::vector<std::string> largest, options;
  for (const MemoryNeed::Part& part : need.parts) {
    if (!options.empty() && part.bytes < 0.1 * total) break;
    largest.push_back(fmt::format("{} for {}", in_bytes(part.bytes), part.name));
    for (const std::string& option : part.options) {
      if (std::find(options.begin(), options.end(), option) == options.end()) options.push_back(option);
    }
  }
  std::string place = "default";
  for (const char* key :
       {"replay.capacity", "staleness.window", "policy.hidden", "env.count", "env.workers", "replay.segment_length",
        "learner.batch_size", "staleness.actors", "learner.updates", "learner.env_steps"}) {
    if (place == "default") place = origin_of(origins, key);
  }
  const std::string others = limit.used_by_others > 0.01 * limit.bytes
                                 ? fmt::format(", of which others use {}", in_bytes(limit.used_by_others))
                                 : "";
  throw Error(fmt::format("{}: the run needs about {} of memory ({}), but {} has {}{}: lower {}, or give it more",
                          place, in_bytes(total), fmt::join(largest, ", "), limit.what, in_bytes(limit.bytes), others,
                          fmt::join(options, ", ")));
}

std::string in_bytes(double bytes) {
  return bytes < 1e9 ? fmt::format("{:.1f} MB", 1e-6 * bytes) : fmt::format("{:.3g} GB", 1e-9 * bytes);
}

}  // namespace gipo
