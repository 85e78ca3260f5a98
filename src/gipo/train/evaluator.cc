#include "gipo/train/evaluator.h"

#include <fmt/format.h>

#include <algorithm>

#include "gipo/core/error.h"
#include "gipo/core/stop.h"
#include "gipo/plan/plan.h"
#include "gipo/train/faults.h"
#include "gipo/train/observer.h"

namespace gipo {
namespace {

// The episodes of one evaluation: one environment per place; a place whose episode ends takes the next one, until none
// is left.
class Evaluator {
 public:
  Evaluator(const ModelSpec& model, const Weights& weights, const EvalTask& task)
      : model_(model),
        weights_(weights),
        task_(task),
        episodes_(static_cast<std::size_t>(task.episodes)),
        returns_(episodes_),
        success_(episodes_),
        inference_(model, evaluated_together(task.episodes)),
        observer_(task.spec.fields.empty() ? plain_fields(model.observation_size) : task.spec.fields,
                  evaluated_together(task.episodes)),
        action_(model.distribution.dims()),
        log_prob_(model.distribution.dims()) {
    for (std::unique_ptr<Env>& env :
         make_envs(task.spec, task.env, task.env_options,
                   {evaluated_together(task.episodes), evaluation_workers(), false, task.stop})) {
      places_.push_back(
          {std::move(env), RandomStream(), std::vector<double>(model.distribution.dims()), places_.size()});
    }
  }

  Evaluation play() {
    for (Place& place : places_) begin(place, next_++);
    while (!places_.empty()) {
      throw_if_requested(task_.stop);
      look();
      act();
      for (Place& place : places_) step(place);
      std::erase_if(places_, [](const Place& place) { return !place.env; });
    }
    found_.returns = return_stats(returns_, success_);
    return std::move(found_);
  }

 private:
  struct Place {
    std::unique_ptr<Env> env;
    RandomStream random;
    std::vector<double> action;  // [action_dims]
    std::size_t row = 0;         // of the observer
    std::size_t episode = 0;
    std::int64_t length = 0, faults = 0;  // steps of the episode; times it was begun again
  };

  void begin(Place& place, std::size_t episode) {
    if (episode != place.episode) place.faults = 0;
    place.episode = episode;
    place.length = 0;
    returns_[episode] = 0;
    success_[episode] = {};
    // Begun again, an episode has another start.
    const std::uint64_t seed =
        place.faults == 0 ? task_.seed : derive_seed(task_.seed, "again", static_cast<std::uint64_t>(place.faults));
    place.env->reset(derive_seed(seed, "eval", episode));
    place.random = RandomStream::derive(seed, "eval-action", episode);
  }

  void observe(Place& place) { observer_.observe(*place.env, place.row); }

  // First observations, once all environments have begun to reset; others were seen with their step.
  void look() {
    observations_.clear();
    masks_.clear();
    for (Place& place : places_) {
      if (place.length == 0) {
        for (observe(place); !all_finite(observer_.floats(place.row)); observe(place)) begin_again(place, kBadStart);
      }
      const std::span<const float> now = observer_.floats(place.row);
      observations_.insert(observations_.end(), now.begin(), now.end());
      if (observer_.masks()) keep_mask(place);
    }
  }

  void keep_mask(const Place& place) {
    const std::uint8_t* mask = observer_.mask(place.row);
    if (!any_valid(model_.distribution, mask)) {
      throw RunError(fmt::format("{}: its mask leaves no valid action at step {} of episode {} of an evaluation",
                                 task_.spec.id, place.length + 1, place.episode));
    }
    masks_.insert(masks_.end(), mask, mask + model_.distribution.mask_size());
  }

  void act() {
    const std::uint8_t* masks = masks_.empty() ? nullptr : masks_.data();
    const DistributionView<float> pi = inference_.policy(weights_, observations_);
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (task_.greedy) {
        mode_action(model_.distribution, pi, i, action_, masks);
      } else {
        sample_action(model_.distribution, pi, i, places_[i].random, action_, log_prob_, masks);
      }
      to_env_action(model_, action_, places_[i].action);
      places_[i].env->begin_step(places_[i].action);
    }
  }

  void step(Place& place) {
    const StepResult result = place.env->step(place.action);
    observe(place);
    const Fault fault = find_fault(result, static_cast<float>(result.reward), observer_.floats(place.row));
    if (fault) return begin_again(place, fault);
    returns_[place.episode] += result.reward;
    success_[place.episode].add(result);
    ++place.length;
    if (!result.terminated && !result.truncated) return;
    if (next_ < episodes_) {
      begin(place, next_++);
    } else {
      place.env.reset();
    }
  }

  void begin_again(Place& place, const Fault& why) {
    ++found_.faults[why.name];
    found_.last_fault = fmt::format("{} gave {} ({}), at step {} of episode {} of an evaluation", task_.spec.id,
                                    why.text, why.name, place.length + 1, place.episode);
    if (why.name == kWorkerDied) {
      found_.last_fault += ": " + place.env->last_death();
    } else if (++place.faults >= kMostFaults) {
      throw RunError(fmt::format("{}: {} times in a row without one whole episode", found_.last_fault, place.faults));
    }
    begin(place, place.episode);
  }

  const ModelSpec& model_;
  const Weights& weights_;
  const EvalTask& task_;
  const std::size_t episodes_;
  std::size_t next_ = 0;
  std::vector<Place> places_;
  std::vector<double> returns_;   // [episodes]
  std::vector<Success> success_;  // [episodes]
  Evaluation found_;
  Inference inference_;
  std::vector<float> observations_;  // [places, observation_size]
  std::vector<std::uint8_t> masks_;  // [places, choices]; empty: none
  Observer observer_;
  std::vector<float> action_, log_prob_;  // [action_dims]
};

}  // namespace

Evaluation evaluate(const ModelSpec& model, const Weights& weights, const EvalTask& task) {
  return Evaluator(model, weights, task).play();
}

}  // namespace gipo
