#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gipo/core/stop.h"
#include "gipo/core/thread_pool.h"
#include "gipo/learner/learner.h"
#include "gipo/replay/replay_buffer.h"
#include "gipo/run/checkpoint.h"
#include "gipo/run/run_folder.h"
#include "gipo/train/actor.h"
#include "gipo/train/evaluator.h"
#include "gipo/train/intake.h"
#include "gipo/train/weight_store.h"

namespace gipo {

inline constexpr std::size_t kRecentEpisodes = 100;

// Where a run stands, for whoever shows it.
struct Progress {
  std::int64_t update = 0, updates = 0, env_steps = 0, total_env_steps = 0, episodes = 0;
  std::int64_t warmup = 0;   // env steps before the first update
  double recent_return = 0;  // mean of the last 100 episodes; NaN before the first
  double gap_mean = 0;       // of the last logged update
  double seconds = 0;
  const Figures* figures = nullptr;  // all of that line of metrics.jsonl, while the call lasts; null during the warm-up
};

// An evaluation that was just made.
struct EvaluationNews {
  const Weights& weights;  // of the policy that was evaluated; the version is the update
  std::int64_t env_steps = 0;
  const Evaluation& result;
  bool best = false;  // the best so far, kept as best.safetensors
};

// What is said at the start of a run, in lines: its dial, and that its environments cannot save their state.
std::string opening(const Plan& plan);

class LikelihoodMeter;
class Pacer;
class RankGroup;
class RemoteActors;

// What the trainer needs from outside; it never prints and never reads the clock itself.
struct TrainerHooks {
  std::function<double()> seconds;                // since some start
  std::function<void(const Progress&)> progress;  // after every logged update, and now and then during the warm-up
  std::function<void(const std::string&)> warn;   // something went wrong that training survives
  std::function<void(const EvaluationNews&)> evaluation = {};   // after every evaluation
  std::function<void(std::span<const Episode>)> episodes = {};  // training episodes that have ended
  const std::atomic<bool>* stop = nullptr;                      // set by a signal: end soon, with a checkpoint
  const std::atomic<bool>* finish = nullptr;  // set by a hook: the update that was made is the last; ends as "stopped"
  RemoteActors* remote = nullptr;             // in place of actors of this process; async alone
  const Demonstrations* demonstrations = nullptr;  // in place of actors and replay, where the plan clones
  std::shared_ptr<RankGroup> ranks = {};           // of which this process is the first, where learner.ranks is above 1
};

// Runs actors and learner in one of two modes and owns all that a run is made of.
//
//   Env::step -> Actor -> ActorReport of Segments -> Intake -> ReplayBuffer -> Batch -> Learner
//      ^                                                                                  |
//      +------------------- Actor reads weights <- WeightStore <--------------------------+
class Trainer {
 public:
  // first: weights to begin with (run/first_weights.h); none: new ones.
  Trainer(const Plan& plan, RunFolder& folder, TrainerHooks hooks, const std::shared_ptr<const Weights>& first = {});
  ~Trainer();

  // Takes up the run where a checkpoint left it; before run(). A lockstep run goes on with the same bytes; an async one,
  // and one that had failed, has lost its open segments alone.
  void restore(const Checkpoint& checkpoint);

  // To the end, to an interruption, or to an error, which is rethrown after a checkpoint and the summary were written.
  RunSummary run();

  // Those of the last update. For hooks, which the run waits for.
  std::shared_ptr<const Weights> current_weights() const;

 private:
  void run_lockstep();
  void set_scales();
  bool next_batch(Batch& batch);
  // Whether the first group to enter the replay may still come: updates wait for it, but no longer than the run.
  bool may_wait_for_groups(std::int64_t env_steps) const;
  std::string why_empty(std::int64_t env_steps, const Intake::Arrived& arrived) const;
  bool collect(std::int64_t due);
  bool collect_rounds(const Weights& weights, std::int64_t rounds, bool last);
  void step_apart(const Weights& weights, std::int64_t rounds, bool last);
  void step_together(const Weights& weights, std::int64_t rounds, bool last);
  void make_actors(std::uint64_t incarnation, const std::vector<std::int64_t>& first_episode);
  void begin_remote(Pacer& pacer);
  void tell_of_remote();
  void end_remote(bool finished);
  void see_off_remote();
  void take_arrived();  // of what actors reported, all but the segments
  void tell_episodes();
  void end_run();
  void run_async();
  // Without the actors where they are on their way (async) or in the middle of a collection (a failure).
  Checkpoint make_checkpoint(bool with_actors);
  bool checkpoint_due();
  void submit_checkpoint(bool with_actors);
  void restart_actors(const Checkpoint& checkpoint);
  bool lockstep() const { return plan_.clones() || plan_.config.run.mode == RunMode::kLockstep; }
  void pass_on_warnings();
  void warn(const std::string& text);
  double seconds() const { return seconds_before_ + hooks_.seconds(); }
  bool interrupted() const { return stop_.from_outside(); }
  bool solved() const;
  bool stopped() const { return hooks_.finish && *hooks_.finish; }
  bool all_updates() const { return learner_->version() >= plan_.config.learner.updates; }
  bool finished() const { return solved() || all_updates() || stopped(); }
  void check_target();
  // One update from a batch, and all that follows it: weights published, figures logged.
  void update(const Batch& batch);
  void log_update(const UpdateStats& stats);
  void append_collection(const UpdateStats& stats);
  void append_likelihood(const UpdateStats& stats);
  void show_progress(double gap_mean, const Figures* figures);
  ReturnStats recent_returns() const;
  EvalTask eval_task(std::int64_t update) const;
  bool evaluation_due() const;
  void evaluate_now();
  void log_evaluation(const Weights& weights, std::int64_t env_steps, const Evaluation& result);
  void tell_of_faults(std::int64_t update, const Evaluation& result);
  bool keep_best(const Weights& weights, std::int64_t env_steps, const ReturnStats& returns);
  void restore_best(const Checkpoint& checkpoint, const nlohmann::json& state);
  RunSummary summary(const std::string& ended) const;

  const Plan& plan_;
  RunFolder& folder_;
  TrainerHooks hooks_;
  Stop stop_, actors_stop_;  // asked for by a signal alone; for whatever reason the actors end
  ThreadPool pool_;
  ReplayBuffer replay_;
  Intake intake_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<LikelihoodMeter> likelihood_;  // where it clones
  WeightStore store_;
  std::vector<std::unique_ptr<Actor>> actors_;
  RunningMoments moments_, returns_{1};  // copies of the replay's
  CheckpointWriter checkpoints_;
  double checkpoint_seconds_ = 0;  // when the last one was begun
  bool checkpoint_due_ = false;
  double seconds_before_ = 0;      // of the run before it was resumed
  std::uint64_t incarnation_ = 0;  // how often it was resumed
  std::int64_t env_steps_ = 0, episode_count_ = 0;
  bool collecting_ = false;                 // in the middle of a collection
  std::vector<std::int64_t> next_episode_;  // [envs] as logged
  std::int64_t last_evaluation_ = 0;        // the update of the last one logged
  Rejections rejections_;                   // as arrived
  GroupCounts groups_;                      // likewise
  std::uint64_t rejected_told_ = 0;
  std::vector<Episode> untold_;  // for the hook
  std::vector<double> recent_;   // returns of the last 100 episodes, a ring
  std::vector<Success> recent_success_;
  Maybe<double> solved_return_;  // their mean when it reached run.target_return
  std::optional<BestEvaluation> best_;
  std::shared_ptr<const std::string> best_file_;  // its policy; checkpoints have it too
  bool evaluated_ = false;                        // after the last update
  ReturnStats last_returns_, eval_return_;        // of the last evaluation by this process, and of the run's last
  FaultCounts eval_faults_;
  Figures figures_;
};

}  // namespace gipo
