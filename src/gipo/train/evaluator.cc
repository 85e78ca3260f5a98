#include "gipo/train/evaluator.h"

#include <fmt/format.h>

#include <algorithm>

#include "gipo/core/error.h"
#include "gipo/core/stop.h"
#include "gipo/plan/plan.h"
#include "gipo/policy/policy.h"
#include "gipo/train/faults.h"
#include "gipo/train/observer.h"

namespace gipo {
namespace {

std::size_t places_of(const EvalTask& task) { return task.apart ? 1 : evaluated_together(task.episodes); }

// The episodes of one evaluation: one environment per place; a place whose episode ends takes the next one, until none
// is left.
class Evaluator {
 public:
  Evaluator(const ModelSpec& model, const Weights& weights, const EvalTask& task)
      : model_(model),
        weights_(weights),
        task_(task),
        episodes_(static_cast<std::size_t>(task.episodes)),
        success_(episodes_),
        policy_(make_policy<float>(model, {places_of(task), 0, true, task.device})),
        observer_(model.fields, places_of(task)),
        action_(places_of(task) * model.distribution.dims()),
        log_prob_(action_.size()),
        state_(places_of(task) * model.state_size()),
        next_state_(state_.size()) {
    found_.played.resize(episodes_);
    for (std::unique_ptr<Env>& env :
         make_envs(task.spec, task.env, task.env_options, {places_of(task), evaluation_workers(), false, task.stop})) {
      places_.push_back({std::move(env), RandomStream(), std::vector<double>(model.distribution.dims())});
    }
  }

  Evaluation play() {
    for (Place& place : places_) begin(place, next_++);
    while (!places_.empty()) {
      throw_if_requested(task_.stop);
      look();
      act();
      for (std::size_t i = 0; i < places_.size(); ++i) step(i);
      close_up();
    }
    std::vector<double> returns;
    for (const PlayedEpisode& e : found_.played) returns.push_back(e.episode_return);
    found_.returns = return_stats(returns, success_);
    return std::move(found_);
  }

 private:
  struct Place {
    std::unique_ptr<Env> env;
    RandomStream random;
    std::vector<double> action;  // [action_dims]
    std::size_t episode = 0;
    std::int64_t length = 0, faults = 0;  // steps of the episode; times it was begun again
  };

  void begin(Place& place, std::size_t episode) {
    if (episode != place.episode) place.faults = 0;
    std::ranges::fill(state_of(state_, static_cast<std::size_t>(&place - places_.data())), 0.0F);
    place.episode = episode;
    place.length = 0;
    success_[episode] = {};
    // Begun again, an episode has another start.
    const std::uint64_t seed =
        place.faults == 0 ? task_.seed : derive_seed(task_.seed, "again", static_cast<std::uint64_t>(place.faults));
    found_.played[episode] = {0, 0, seed};
    place.env->reset(start_seed(seed, episode));
    place.random = action_stream(seed, episode);
  }

  // The places that still play stand together, as rows of the observer too.
  void close_up() {
    std::size_t playing = 0;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (!places_[i].env) continue;
      observer_.move(i, playing);
      if (i != playing) {
        places_[playing] = std::move(places_[i]);
        std::ranges::copy(state_of(state_, i), state_of(state_, playing).begin());
      }
      ++playing;
    }
    places_.resize(playing);
  }

  // What the policy remembers at place i.
  std::span<float> state_of(std::vector<float>& all, std::size_t i) const {
    return std::span(all).subspan(i * model_.state_size(), model_.state_size());
  }

  void observe(std::size_t i) { observer_.observe(*places_[i].env, i); }

  // First observations, once all environments have begun to reset; others were seen with their step.
  void look() {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      Place& place = places_[i];
      if (place.length == 0) {
        for (observe(i); !observer_.finite(i); observe(i)) begin_again(place, kBadStart);
      }
      if (const std::uint8_t* mask = observer_.mask(i); mask && !any_valid(model_.distribution, mask)) {
        throw RunError(fmt::format("{}: its mask leaves no valid action at step {} of episode {} of an evaluation",
                                   task_.spec.id, place.length + 1, place.episode));
      }
    }
  }

  void act() {
    const std::size_t dims = model_.distribution.dims();
    choices_.clear();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      choices_.push_back({task_.greedy ? nullptr : &places_[i].random,
                          {action_.data() + i * dims, dims},
                          {log_prob_.data() + i * dims, dims}});
    }
    policy_->see(parameters_of(weights_), {observer_.columns(), places_.size(), state_.data()});
    policy_->forward(places_.size());
    policy_->choose(choices_);
    policy_->next_state(next_state_.data());
    for (std::size_t i = 0; i < places_.size(); ++i) {
      to_env_action(model_, choices_[i].action, places_[i].action);
      places_[i].env->begin_step(places_[i].action);
    }
  }

  void step(std::size_t i) {
    Place& place = places_[i];
    const StepResult result = place.env->step(place.action);
    std::ranges::copy(state_of(next_state_, i), state_of(state_, i).begin());
    observe(i);
    const Fault fault = find_fault(result, static_cast<float>(result.reward), observer_.finite(i));
    if (fault) return begin_again(place, fault);
    PlayedEpisode& played = found_.played[place.episode];
    played.episode_return += result.reward;
    success_[place.episode].add(result);
    played.length = ++place.length;
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
  std::vector<Success> success_;  // [episodes]
  Evaluation found_;
  std::unique_ptr<Policy<float>> policy_;
  Observer observer_;
  std::vector<float> action_, log_prob_;   // [places, action_dims]
  std::vector<float> state_, next_state_;  // [places, state_size]
  std::vector<ActionRow> choices_;         // [places]
};

}  // namespace

std::uint64_t start_seed(std::uint64_t seed, std::size_t episode) { return derive_seed(seed, "eval", episode); }
RandomStream action_stream(std::uint64_t seed, std::size_t episode) {
  return RandomStream::derive(seed, "eval-action", episode);
}

std::string eval_device(const Plan& plan) { return plan.model.is_large() ? plan.config.learner.device : "cpu"; }

Evaluation evaluate(const ModelSpec& model, const Weights& weights, const EvalTask& task) {
  return Evaluator(model, weights, task).play();
}

}  // namespace gipo
