#include "gipo/train/evaluator.h"

#include <algorithm>
#include <cmath>
#include <thread>

namespace gipo {
namespace {

constexpr std::size_t kMostTogether = 16;  // environments stepped by one inference

}  // namespace

ReturnStats return_stats(std::span<const double> returns, std::span<const Success> success) {
  ReturnStats stats;
  stats.episodes = static_cast<std::int64_t>(returns.size());
  if (returns.empty()) return stats;
  const auto n = static_cast<double>(returns.size());
  for (const double r : returns) stats.mean += r / n;
  for (const double r : returns) stats.std += (r - stats.mean) * (r - stats.mean) / n;
  stats.std = std::sqrt(stats.std);
  double known = 0, ever = 0, last = 0;
  for (const Success& s : success) known += s.known, ever += s.ever, last += s.last;
  if (known > 0) stats.success_rate = ever / known, stats.success_rate_last = last / known;
  return stats;
}

std::size_t evaluated_together(std::int64_t episodes) {
  return std::min(static_cast<std::size_t>(episodes), kMostTogether);
}

std::size_t evaluation_workers() { return std::max(1u, std::thread::hardware_concurrency()); }

ReturnStats evaluate(const ModelSpec& model, const Weights& weights, const EvalTask& task) {
  const auto episodes = static_cast<std::size_t>(task.episodes);
  const std::size_t width = model.observation_size, dims = model.distribution.dims;
  std::vector<double> returns(episodes), env_observation(width);
  std::vector<std::vector<double>> env_actions(kMostTogether, std::vector<double>(dims));
  std::vector<float> action(dims), log_prob(dims);
  std::vector<Success> success(episodes);

  // One environment per place; a place whose episode ends takes the next one, until none is left.
  struct Place {
    std::unique_ptr<Env> env;
    RandomStream random;
    std::size_t episode = 0;
  };
  const std::size_t together = evaluated_together(task.episodes), cores = evaluation_workers();
  std::vector<Place> places;
  std::size_t next = 0;
  const auto begin = [&](Place& place, std::size_t episode) {
    place.episode = episode;
    returns[episode] = 0;
    success[episode] = {};
    place.env->reset(derive_seed(task.seed, "eval", place.episode));
    place.random = RandomStream::derive(task.seed, "eval-action", place.episode);
  };
  for (std::unique_ptr<Env>& env : make_envs(task.spec, task.env, task.env_options, {together, cores, false})) {
    places.push_back({std::move(env), RandomStream(), 0});
  }
  for (Place& place : places) begin(place, next++);

  Inference inference(model, places.size());
  std::vector<float> observation(places.size() * width);
  while (!places.empty()) {
    for (std::size_t i = 0; i < places.size(); ++i) {
      places[i].env->observe(env_observation);
      for (std::size_t d = 0; d < width; ++d) observation[i * width + d] = static_cast<float>(env_observation[d]);
    }
    const DistributionView<float> pi = inference.policy(weights, {observation.data(), places.size() * width});
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (task.greedy) {
        mode_action(model.distribution, pi, i, action);
      } else {
        sample_action(model.distribution, pi, i, places[i].random, action, log_prob);
      }
      to_env_action(model, action, env_actions[i]);
      places[i].env->begin_step(env_actions[i]);
    }
    for (std::size_t i = 0; i < places.size(); ++i) {
      const StepResult result = places[i].env->step(env_actions[i]);
      returns[places[i].episode] += result.reward;
      success[places[i].episode].add(result);
      if (!result.terminated && !result.truncated) continue;
      if (result.fault == kWorkerDied) {  // played again, from a start of its own
        begin(places[i], places[i].episode);
      } else if (next < episodes) {
        begin(places[i], next++);
      } else {
        places[i].env.reset();
      }
    }
    std::erase_if(places, [](const Place& place) { return !place.env; });
  }
  return return_stats(returns, success);
}

}  // namespace gipo
