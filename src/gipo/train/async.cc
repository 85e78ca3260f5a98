// The asynchronous mode: actor threads, a thread that prepares batches, an evaluator, and the learner on the calling
// thread. Actor, replay and learner are the same objects as in lockstep; only the schedule differs.
#include <exception>
#include <mutex>
#include <stop_token>
#include <thread>

#include "gipo/core/error.h"
#include "gipo/core/queue.h"
#include "gipo/train/pacer.h"
#include "gipo/train/trainer.h"

namespace gipo {
namespace {

// What the threads of one async run share beside the replay and the weight store.
struct Shared {
  Shared(const Plan& plan, std::int64_t slack)
      : pacer([&plan](std::int64_t u) { return plan.env_steps_due(u); }, slack,
              plan.config.staleness.pacing == "free") {}

  Pacer pacer;
  ClosableQueue<Batch*> free_batches, ready_batches;
  struct Evaluation {
    std::int64_t env_steps = 0;
    std::shared_ptr<const Weights> weights;
    ReturnStats result;
  };
  ClosableQueue<Evaluation> evaluations, results;

  std::mutex mutex;
  std::vector<Episode> episodes;
  std::uint64_t rejected = 0;
  FaultCounts faults;
  std::string last_fault;
  std::exception_ptr error;  // the first

  void stop() {
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
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      stop();
    }
  }
};

void act(Actor& actor, const WeightStore& store, ReplayBuffer& replay, Shared& shared) {
  const auto steps = static_cast<std::int64_t>(actor.envs());
  std::vector<Episode> episodes;
  std::uint64_t rejected = 0;
  while (shared.pacer.wait_to_collect()) {
    const std::int64_t before = shared.pacer.begin_steps(steps);
    actor.step(*store.get(), before);
    actor.drain(replay, episodes);
    // After the drain: an update that waited for these steps must find their segments.
    shared.pacer.end_steps(steps);
    if (episodes.empty() && actor.rejected() == rejected) continue;
    const std::lock_guard lock(shared.mutex);
    shared.episodes.insert(shared.episodes.end(), episodes.begin(), episodes.end());
    shared.rejected += actor.rejected() - rejected;
    actor.take_faults(shared.faults);
    shared.last_fault = actor.last_fault();
    rejected = actor.rejected();
    episodes.clear();
  }
}

void prepare_batches(std::int64_t next, ReplayBuffer& replay, Shared& shared) {
  for (; shared.pacer.wait_to_update(next); ++next) {
    const std::optional<Batch*> batch = shared.free_batches.pop();
    if (!batch) return;
    if (!replay.sample(**batch))
      throw RunError(
          "the replay is empty after the warm-up: every segment was rejected "
          "because it held numbers that are not finite");
    if (!shared.ready_batches.push(*batch)) return;
  }
}

}  // namespace

void Trainer::run_async() {
  const auto batch_size = static_cast<std::size_t>(plan_.config.learner.batch_size);
  // Actors may be ahead by a few updates' worth, so that neither side waits for the other's every step.
  const auto slack =
      std::max(static_cast<std::int64_t>(4 * plan_.env_steps_per_update), 2 * static_cast<std::int64_t>(plan_.envs()));
  Shared shared(plan_, slack);
  shared.pacer.start_at(env_steps_, learner_->version());
  shared.rejected = rejected_;
  shared.faults = faults_;
  std::vector<Batch> batches(2, Batch(batch_size, plan_.env.observation_size, plan_.env.action.dims()));
  for (Batch& batch : batches) shared.free_batches.push(&batch);

  const std::int64_t first = learner_->version();
  std::vector<std::jthread> threads;
  for (const auto& actor : actors_) {
    threads.emplace_back([&] { shared.guard([&] { act(*actor, store_, replay_, shared); }); });
  }
  threads.emplace_back([&] { shared.guard([&] { prepare_batches(first, replay_, shared); }); });
  threads.emplace_back([&] {
    shared.guard([&] {
      while (std::optional<Shared::Evaluation> e = shared.evaluations.pop()) {
        e->result = evaluate(plan_.model, *e->weights, eval_task(e->weights->version));
        shared.results.push(std::move(*e));
      }
    });
  });

  const auto take_reports = [&] {
    env_steps_ = shared.pacer.env_steps();
    while (const std::optional<Shared::Evaluation> e = shared.results.try_pop()) {
      folder_.evaluation(e->weights->version, e->env_steps, e->result);
    }
    const std::lock_guard lock(shared.mutex);
    rejected_ = shared.rejected;
    faults_ = shared.faults;
    last_fault_ = shared.last_fault;
    take_episodes(shared.episodes);
  };
  shared.guard([&] {
    while (!finished() && !interrupted()) {
      const std::optional<Batch*> batch = shared.ready_batches.pop();
      if (!batch) break;
      take_reports();
      if (plan_.config.env.normalise_observations) {
        replay_.copy_moments(moments_);
        learner_->set_observation_scale(moments_);
      }
      update(**batch);
      shared.free_batches.push(*batch);
      shared.pacer.updated(learner_->version());
      if (evaluation_due()) shared.evaluations.push({env_steps_, store_.get(), {}});
      checkpoint_if_due();
    }
  });
  shared.stop();
  threads.clear();  // joins
  if (shared.error) std::rethrow_exception(shared.error);
  take_reports();
}

}  // namespace gipo
