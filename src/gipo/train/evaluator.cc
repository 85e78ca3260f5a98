#include "gipo/train/evaluator.h"

#include <algorithm>
#include <cmath>

namespace gipo {
namespace {

constexpr std::size_t kMostTogether = 16;  // environments stepped by one inference

}  // namespace

ReturnStats return_stats(std::span<const double> returns) {
  ReturnStats stats;
  stats.episodes = static_cast<std::int64_t>(returns.size());
  if (returns.empty()) return stats;
  const auto n = static_cast<double>(returns.size());
  for (const double r : returns) stats.mean += r / n;
  for (const double r : returns) stats.std += (r - stats.mean) * (r - stats.mean) / n;
  stats.std = std::sqrt(stats.std);
  return stats;
}

ReturnStats evaluate(const ModelSpec& model, const Weights& weights, const EvalTask& task) {
  const auto episodes = static_cast<std::size_t>(task.episodes);
  const std::size_t width = model.observation_size, dims = model.distribution.dims;
  std::vector<double> returns(episodes), env_observation(width), env_action(dims);
  std::vector<float> action(dims), log_prob(dims);

  // One environment per place; a place whose episode ends takes the next one, until none is left.
  struct Place {
    std::unique_ptr<Env> env;
    RandomStream random;
    std::size_t episode = 0;
  };
  std::vector<Place> places;
  std::size_t next = 0;
  const auto begin = [&](Place& place) {
    place.episode = next++;
    place.env->reset(derive_seed(task.seed, "eval", place.episode));
    place.random = RandomStream::derive(task.seed, "eval-action", place.episode);
  };
  for (std::size_t i = 0; i < std::min(episodes, kMostTogether); ++i) {
    places.push_back({make_env(task.env_id, task.time_limit, task.env_options), RandomStream(), 0});
    begin(places.back());
  }

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
      to_env_action(model, action, env_action);
      const StepResult result = places[i].env->step(env_action);
      returns[places[i].episode] += result.reward;
      if (!result.terminated && !result.truncated) continue;
      if (next < episodes) {
        begin(places[i]);
      } else {
        places[i].env.reset();
      }
    }
    std::erase_if(places, [](const Place& place) { return !place.env; });
  }
  return return_stats(returns);
}

}  // namespace gipo
