#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gipo/bench/bench.h"
#include "gipo/bench/clock.h"
#include "gipo/population/engine.h"
#include "gipo/population/prepare.h"

namespace gipo {
namespace {

constexpr std::int64_t kWarm = 20, kUpdates = 200;

// So many runs of CartPole, from the warm-up of their replays on, without writing anything.
std::vector<BenchRow> measure_population(const std::string& name, const Widths& hidden, std::size_t runs) {
  LoadedConfig loaded;
  loaded.config.policy.hidden = hidden;
  loaded.config.staleness.env_steps_per_update = 8.0;
  loaded.config.log.every_updates = 50;
  std::vector<Plan> plans;
  for (std::size_t i = 0; i < runs; ++i) {
    loaded.config.run.seed = static_cast<std::int64_t>(i + 1);
    plans.push_back(make_plan(loaded));
  }
  std::vector<const Plan*> all;
  std::vector<population::RunSpec> specs;
  for (const Plan& plan : plans) {
    all.push_back(&plan);
    specs.push_back(population::card_spec(plan, kUpdates));
  }
  const auto engine = population::make_cuda_engine();
  const std::size_t held = engine->fits(specs);
  engine->begin(std::span(all).first(held), std::span(specs).first(held));
  engine->launch(kWarm);
  engine->wait();
  const double begin = steady_time();
  engine->launch(kUpdates);
  engine->wait();
  const double rate = static_cast<double>(held) * kUpdates / (steady_time() - begin);
  return {{fmt::format("{} env steps", name), 8 * rate, "/s", "", 0},
          {fmt::format("{} updates", name), rate, "/s", "", 0}};
}

}  // namespace

std::vector<BenchCase> bench_population() {
  population::make_cuda_engine();  // says what is missing
  std::vector<BenchCase> cases;
  for (const Widths& hidden : {Widths{32, 32}, Widths{64, 64}}) {
    for (const std::size_t runs : {1u, 16u, 128u, 1024u, 4096u}) {
      const std::string name = fmt::format("population {} x CartPole {}", runs, fmt::join(hidden, "x"));
      cases.push_back({name, [=] { return measure_population(name, hidden, runs); }});
    }
  }
  return cases;
}

}  // namespace gipo
