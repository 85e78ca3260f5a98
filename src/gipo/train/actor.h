#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gipo/data/segment.h"
#include "gipo/env/env.h"
#include "gipo/policy/policy.h"
#include "gipo/train/actor_report.h"
#include "gipo/train/actor_spec.h"
#include "gipo/train/observer.h"
#include "gipo/train/open_group.h"

namespace gipo {

class Stop;

// Steps several environments together, one inference for all, and fills one segment per environment. Owned by one
// thread at a time; the same code serves lockstep and async, here and in other processes: see train/collect.h.
class Actor {
 public:
  // stop: where requested, waiting for an environment throws Interrupted; what was finished by then can be reported,
  // and nothing else is to be asked of the actor.
  // envs: its environments, where they share processes with those of other actors, all on one thread; none: it makes
  // them itself.
  explicit Actor(ActorSpec spec, const Stop* stop = nullptr, std::vector<std::unique_ptr<Env>> envs = {});

  std::size_t envs() const { return slots_.size(); }
  // The number of the episode that an environment is in.
  std::int64_t episode(std::size_t env) const { return slots_[env].episode_number; }
  // Steps every environment once. env_steps: of the whole run, before this round.
  void step(const Weights& weights, std::int64_t env_steps);
  // The two halves of it: environments in other processes work between them.
  void begin_step(const Weights& weights);
  void finish_step(const Weights& weights, std::int64_t env_steps);
  // Ends all open segments here, as at the end of a rollout.
  void cut(const Weights& weights);
  // What was finished since the last report, in order. Good until the next call of step, cut or report, which uses its
  // buffers again.
  const ActorReport& report();

  // Nothing will be asked again: processes of its environments may end, which its destructor waits for.
  void leave();

  void save(ByteWriter& out) const;
  void load(ByteReader& in);

 private:
  void save_contexts(ByteWriter& out) const;
  void load_contexts(ByteReader& in);
  struct Slot {  // one environment
    std::unique_ptr<Env> env;
    RandomStream action_random;
    Segment open;
    double episode_return = 0, discounted = 0;
    std::int64_t episode_length = 0, episode_number = 0;
    Success success = {};  // of the episode so far
    std::uint64_t sequence = 0;
    std::int64_t faults = 0;        // in a row, without a whole segment between them
    std::size_t recent = 0;         // observations of this episode in recent_
    std::size_t context = 0;        // of the open segment, in contexts_
    OpenGroup group = {};           // where advantages are made in groups
    std::vector<float> noise = {};  // [dims] of the last action, where it lasts
    bool begun = false;             // an episode in this step, whose first observation was not looked at yet
  };
  bool in_groups() const { return spec_.advantage.mode == AdvantageMode::kGroup; }
  bool whole(const OpenGroup& group) const {
    return in_groups() && group.returns.size() == static_cast<std::size_t>(spec_.advantage.group_size);
  }
  void begin_noise(Slot& slot);
  // The next episode. In groups its start follows from the group's number, so that all of a group have the same one.
  void reset(Slot& slot, bool first = false);
  void finish_group(Slot& slot);
  // Drops the open segment of an environment that gave what no learner may see, or its open group, and begins a new
  // episode. Throws RunError, naming the environment, when it keeps doing so.
  void drop_segment(std::size_t i, Fault why);
  bool can_go_on(const Slot& slot) const;
  void choose_actions(const Weights& weights);
  void step_slot(std::size_t i, const Weights& weights, std::int64_t env_steps);
  void close_ended(const Weights& weights);
  // The first observations; those of other processes may take their time.
  void look();
  void look_at_start(std::size_t i);
  void close(Slot& slot, const Weights& weights);
  // What the open segment of environment i begins with: the context, and the state of before.
  void begin_segment(std::size_t i);
  // The observation that environment i has just acted on, and the state before and after it.
  void remember(std::size_t i);
  void make_advantages(Segment& s, const Weights& weights);
  RewardScale reward_scale(const Segment& s, const Weights& weights);
  void begin_episode(std::size_t i);
  // What was observed last of environment i, as row `row` of its segment. Throws RunError where its frames are not those
  // of the rows before.
  void keep_observation(Segment& s, std::size_t row, std::size_t i);
  void check_frames(const Segment& s, std::size_t row, std::size_t field, std::size_t i) const;
  void locate_all(const Segment& s, std::size_t context);

  std::size_t number_of(const Slot& slot) const;  // in the run
  void reuse_report();

  ActorSpec spec_;
  std::vector<Slot> slots_;
  std::unique_ptr<Policy<float>> policy_;
  Observer observer_;
  std::vector<double> env_action_;         // [envs, action_dims]
  std::vector<ActionRow> choices_;         // [envs]
  std::vector<const std::byte*> columns_;  // [fields] of a segment
  std::vector<float> reward_;              // [segment_length] of a segment, scaled
  // Of a policy with memory: the state of each environment, what it will be after the action that was chosen, and those
  // before the observations of recent_.
  std::vector<float> state_, next_state_, recent_state_;  // [envs, state_size], the last [envs, context, state_size]
  // The last observations of each environment, oldest first, and those of before its open segment.
  Table recent_, contexts_;  // [envs * context]
  Table stacked_;  // [segment_length + 1 + context] observations of a segment with all frames, where it has any
  RunningMoments returns_{1};
  bool looked_ = false;
  std::vector<Segment> spare_;
  ActorReport report_;
  bool reported_ = false;          // what is in it was handed over
  std::uint64_t next_report_ = 0;  // not saved: marks of reports are not either
};

}  // namespace gipo
