// What an update costs, and what its diagnostics add. Both are timed in turn within one benchmark, so that a noisy
// machine slows both alike; `diagnostics_share` is the ratio to be read.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "gipo/core/thread_pool.h"
#include "gipo/learner/learner.h"

namespace gipo {
namespace {

constexpr std::int64_t kVersions = 5000;

Batch stale_batch(std::size_t size, const EnvSpec& env) {
  Batch b(size, env.observation_size, env.action.dims());
  RandomStream random(1);
  for (float& v : b.observation) v = static_cast<float>(random.normal());
  for (std::size_t i = 0; i < size; ++i) {
    b.action[i] = static_cast<float>(random.below(2));
    b.log_prob[i] = static_cast<float>(-0.7 + random.normal());
    b.reward[i] = static_cast<float>(random.normal());
    b.version[i] = -static_cast<std::int64_t>(random.below(kVersions));
  }
  for (std::size_t at = 0; at < size; at += 64) b.windows.push_back({at, std::min<std::size_t>(64, size - at), false});
  return b;
}

void update(benchmark::State& state) {
  const auto width = state.range(0), batch_size = state.range(1);
  const EnvSpec env{"bench", "", 8, ActionSpace::discrete(2), 0};
  PolicyOptions policy;
  policy.hidden = {width, width};
  LearnerSetup setup;
  setup.model = make_model_spec(policy, env);
  setup.learner.batch_size = batch_size;
  setup.t_old = kVersions / 10;
  setup.window = kVersions;
  ThreadPool pool(1);
  const auto learner = make_learner(setup, RandomStream(1), pool);
  const Batch batch = stale_batch(static_cast<std::size_t>(batch_size), env);

  // Medians of single updates: an interruption by the machine falls on one of them and is left out.
  std::vector<double> plain, diagnosed;
  const auto seconds = [&](bool diagnose) {
    const auto begin = std::chrono::steady_clock::now();
    learner->update(batch, {0, diagnose});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (auto _ : state) {
    plain.push_back(seconds(false));
    diagnosed.push_back(seconds(true));
  }
  const auto median = [](std::vector<double>& v) {
    std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
  };
  const double base = median(plain);
  state.counters["update_us"] = 1e6 * base;
  state.counters["diagnostics_share"] = (median(diagnosed) - base) / base;
}
BENCHMARK(update)->ArgNames({"width", "batch"})->Args({64, 64})->Args({64, 256})->Args({64, 512})->Args({256, 256});

}  // namespace
}  // namespace gipo
