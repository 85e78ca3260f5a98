// What an update costs, and what its diagnostics add. Both are timed in turn within one benchmark, so that a noisy
// machine slows both alike; `diagnostics_share` is the ratio to be read.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "gipo/bench/made_up.h"
#include "gipo/core/thread_pool.h"

namespace gipo {
namespace {

void update(benchmark::State& state) {
  const auto width = state.range(0), batch_size = state.range(1);
  const auto rows = static_cast<std::size_t>(batch_size);
  const LearnerSetup setup = made_up_setup(8, ActionSpace::discrete(2), {width, width}, rows);
  ThreadPool pool(1);
  const auto learner = make_learner(setup, RandomStream(1), pool);
  Batch batch = made_up_batch(rows, setup.model);

  // Medians of single updates: an interruption by the machine falls on one of them and is left out.
  std::vector<double> plain, diagnosed;
  const auto seconds = [&](bool diagnose) {
    for (std::int64_t& version : batch.version()) ++version;  // as old as before
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
