// What honest intervals cost: 50,000 repetitions over a table of 10 runs, 5 tasks and 8 methods, with all pairs.
#include <benchmark/benchmark.h>

#include "gipo/core/random.h"
#include "gipo/stats/bootstrap.h"

namespace gipo {
namespace {

void bootstrap_10x5x8(benchmark::State& state) {
  RandomStream random(1);
  ScoreTable table = {std::vector<std::string>(8, "method"), std::vector<std::string>(5, "task"), {}};
  for (std::size_t m = 0; m < 8; ++m) {
    table.scores.emplace_back(5, std::vector<double>(10));
    for (auto& runs : table.scores.back()) {
      for (double& score : runs) score = random.uniform();
    }
  }
  for (auto _ : state) benchmark::DoNotOptimize(estimate(table, {}));
}
BENCHMARK(bootstrap_10x5x8)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gipo
