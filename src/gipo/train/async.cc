// The asynchronous mode: actor threads, a thread that prepares batches, an evaluator, and the learner on the calling
// thread. Actor, replay and learner are the same objects as in lockstep; only the schedule differs.
#include <fmt/format.h>

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "gipo/core/error.h"
#include "gipo/core/queue.h"
#include "gipo/train/pacer.h"
#include "gipo/train/remote_actors.h"
#include "gipo/train/trainer.h"

namespace gipo {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // at signals, while the learner has nothing to do

// What the threads of one async run share beside the replay and the weight store.
struct Shared {
  Shared(const Plan& plan, std::int64_t slack, Stop& actors_stop)
      : actors_stop(actors_stop),
        pacer([&plan](std::int64_t u) { return plan.env_steps_due(u); }, slack,
              plan.config.staleness.pacing == Pacing::kFree) {}

  Stop& actors_stop;
  Pacer pacer;
  ClosableQueue<Batch*> free_batches, ready_batches;
  struct Examination {
    std::int64_t env_steps = 0;
    std::shared_ptr<const Weights> weights;
    Evaluation result;
  };
  ClosableQueue<Examination> evaluations, results;

  std::mutex mutex;
  std::exception_ptr error;  // the first

  void stop() {
    actors_stop.request();
    pacer.stop();
    free_batches.close();
    ready_batches.close();
    evaluations.close();
  }
  // Runs a thread's work; what it throws ends the run and reaches the trainer.
  template <class F>
  void guard(F&& work) {
    try {
      work();
    } catch (const Interrupted&) {
      stop();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      stop();
    }
  }
};

template <class F>
void start_thread(std::vector<std::jthread>& threads, std::size_t wanted, F&& work) {
  try {
    threads.emplace_back(std::forward<F>(work));
  } catch (const std::system_error& e) {
    throw RunError(fmt::format("thread {} of {} cannot be started: {}; staleness.actors decides how many are needed",
                               threads.size() + 1, wanted, e.code().message()));
  }
}

// why_empty: the text of an error, or nothing where the run may go on waiting for data.
template <class F>
void prepare_batches(std::int64_t next, ReplayBuffer& replay, Shared& shared, F&& why_empty) {
  for (; shared.pacer.wait_to_update(next); ++next) {
    const std::optional<Batch*> batch = shared.free_batches.pop();
    if (!batch) return;
    while (!replay.sample(**batch)) {
      const std::int64_t env_steps = shared.pacer.env_steps();
      if (const std::optional<std::string> why = why_empty(env_steps)) throw RunError(*why);
      if (!shared.pacer.wait_for(env_steps + 1)) return;
    }
    if (!shared.ready_batches.push(*batch)) return;
  }
}

}  // namespace

// A checkpoint comes first: whatever happens once an actor was answered, there is one to go on from.
void Trainer::begin_remote(Pacer& pacer) {
  hooks_.remote->begin({intake_, store_, pacer, next_episode_, incarnation_});
  submit_checkpoint(false);
  checkpoints_.finish();
  hooks_.remote->listen();
}

void Trainer::tell_of_remote() {
  for (const std::string& line : hooks_.remote->take_news()) folder_.log(line);
  for (const std::string& line : hooks_.remote->take_warnings()) warn(line);
}

void Trainer::end_remote(bool finished) {
  if (!hooks_.remote) return;
  hooks_.remote->end(finished);
  tell_of_remote();
}

void Trainer::see_off_remote() {
  if (!hooks_.remote) return;
  hooks_.remote->see_off(stop_);
  tell_of_remote();
}

void Trainer::run_async() {
  const auto batch_size = static_cast<std::size_t>(plan_.config.learner.batch_size);
  // Actors may be ahead by a few updates' worth, so that neither side waits for the other's every step.
  // Remote ones also by what is on its way to them and back.
  const auto slack = std::max({static_cast<std::int64_t>(4 * plan_.env_steps_per_update),
                               2 * static_cast<std::int64_t>(plan_.envs()), hooks_.remote ? hooks_.remote->lead() : 0});
  Shared shared(plan_, slack, actors_stop_);
  shared.pacer.start_at(env_steps_, learner_->version());
  std::vector<Batch> batches(2, Batch(batch_size, plan_.transition()));
  for (Batch& batch : batches) shared.free_batches.push(&batch);

  const std::int64_t first = learner_->version();
  const std::size_t wanted = actors_.size() + 2;
  std::vector<std::jthread> threads;
  shared.guard([&] {
    if (hooks_.remote) begin_remote(shared.pacer);
    for (const auto& actor : actors_) {
      start_thread(threads, wanted,
                   [&] { shared.guard([&] { gipo::collect(*actor, store_, intake_, shared.pacer, actors_stop_); }); });
    }
    const auto empty = [this](std::int64_t env_steps) -> std::optional<std::string> {
      if (may_wait_for_groups(env_steps)) return std::nullopt;
      const auto held = intake_.hold();
      return why_empty(env_steps, intake_.arrived());
    };
    start_thread(threads, wanted,
                 [&, empty] { shared.guard([&] { prepare_batches(first, replay_, shared, empty); }); });
    start_thread(threads, wanted, [&] {
      shared.guard([&] {
        while (std::optional<Shared::Examination> e = shared.evaluations.pop()) {
          e->result = evaluate(plan_.model, *e->weights, eval_task(e->weights->version));
          shared.results.push(std::move(*e));
        }
      });
      shared.results.close();  // the learner may be waiting for one
    });
  });

  // One at a time: the learner waits for a slow evaluation when the next is due, and a checkpoint for one under way.
  bool evaluating = false;
  const auto take_evaluation = [&](const std::optional<Shared::Examination>& e) {
    if (!e) return;
    log_evaluation(*e->weights, e->env_steps, e->result);
    evaluating = false;
  };
  const auto begin_evaluation = [&] { evaluating = shared.evaluations.push({env_steps_, current_weights(), {}}); };
  // With the intake held.
  const auto take_all = [&] {
    env_steps_ = shared.pacer.env_steps();
    take_arrived();
  };
  shared.guard([&] {
    // The run was stopped between a checkpoint and the evaluation of its update.
    if (evaluation_due()) begin_evaluation();
    while (!finished() && !interrupted() && !shared.ready_batches.closed()) {
      const std::optional<Batch*> batch = shared.ready_batches.pop_within(kLook);
      {
        const auto held = intake_.hold();
        take_all();
      }
      take_evaluation(shared.results.try_pop());
      tell_episodes();
      if (hooks_.remote) tell_of_remote();
      if (!batch && learner_->version() == 0) show_progress(0, nullptr);
      if (!batch) continue;
      set_scales();
      update(**batch);
      shared.free_batches.push(*batch);
      shared.pacer.updated(learner_->version());
      if (evaluation_due() && evaluating) take_evaluation(shared.results.pop());
      if (checkpoint_due() && !evaluating) {
        const auto held = intake_.hold();
        take_all();
        submit_checkpoint(false);
      }
      if (evaluation_due()) begin_evaluation();
    }
  });
  shared.stop();
  if (hooks_.remote) hooks_.remote->hold();
  threads.clear();  // joins
  take_all();
  take_evaluation(shared.results.try_pop());
  tell_episodes();
  if (shared.error) std::rethrow_exception(shared.error);
}

}  // namespace gipo
