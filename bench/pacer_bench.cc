// What pacing costs: one update of nothing beside actors that wait for it. Each takes 8 steps at a time, and an update is due
// for every two steps, so that most actors wait most of the time.
#include <benchmark/benchmark.h>

#include <thread>
#include <vector>

#include "gipo/train/pacer.h"

namespace gipo {
namespace {

constexpr std::int64_t kRound = 8, kStepsPerUpdate = 2, kSlack = 256;

void pacer_update(benchmark::State& state) {
  Pacer pacer([](std::int64_t update) { return kRound + kStepsPerUpdate * update; }, kSlack, false);
  std::vector<std::jthread> actors;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    actors.emplace_back([&pacer] {
      while (pacer.begin(kRound)) pacer.end(kRound, kRound);
    });
  }
  std::int64_t updates = 0;
  for (auto _ : state) {
    pacer.wait_to_update(updates);
    pacer.updated(++updates);
  }
  pacer.stop();
}
BENCHMARK(pacer_update)->ArgName("actors")->Arg(1)->Arg(4)->Arg(16)->UseRealTime();

}  // namespace
}  // namespace gipo
