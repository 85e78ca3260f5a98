// Steps of one task per second of the clock, of processor time, and in the best 5 ms, for bench/peers:
// `env_steps ID ENVIRONMENTS THREADS SECONDS`. Every thread plays its share of the environments in turn, with random
// actions drawn beforehand. A task of a Python package is played by one thread, with as many workers.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <latch>
#include <numeric>
#include <thread>
#include <vector>

#include "gipo/env/env.h"

namespace {

using namespace gipo;
using Clock = std::chrono::steady_clock;

struct Player {
  Player(const EnvSpec& spec, const EnvOptions& options, const EnvCrowd& crowd, std::uint64_t seed)
      : dims(spec.action.dims()), actions(kDrawn * dims), observation(spec.observation_size) {
    envs = make_envs(spec, options, {}, crowd);
    for (std::size_t i = 0; i < envs.size(); ++i) envs[i]->reset(seed + i);
    for (const auto& env : envs) env->observe(observation);
    RandomStream random(seed);
    const bool box = spec.action.kind == ActionSpace::Kind::kBox;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const std::size_t d = i % dims;
      actions[i] = box ? random.uniform(spec.action.low[d], spec.action.high[d])
                       : static_cast<double>(random.below(static_cast<std::uint64_t>(spec.action.choices[d])));
    }
  }

  double steps_per_second(double seconds) {
    const auto begin = Clock::now();
    const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    std::int64_t steps = 0, window_steps = 0;
    double window_begin = 0;
    const auto action = [&](std::size_t i) {
      return std::span<const double>(actions).subspan((static_cast<std::size_t>(steps) + i) % kDrawn * dims, dims);
    };
    while (elapsed() < seconds) {
      for (std::size_t i = 0; i < envs.size(); ++i) envs[i]->begin_step(action(i));
      for (std::size_t i = 0; i < envs.size(); ++i) {
        const StepResult r = envs[i]->step(action(i));
        if (r.terminated || r.truncated) envs[i]->reset();
        envs[i]->observe(observation);
      }
      steps += static_cast<std::int64_t>(envs.size());
      if (const double now = elapsed(); now - window_begin >= kWindow) {
        best_window = std::max(best_window, static_cast<double>(steps - window_steps) / (now - window_begin));
        window_begin = now;
        window_steps = steps;
      }
    }
    return static_cast<double>(steps) / elapsed();
  }

  static constexpr std::size_t kDrawn = 1009;
  static constexpr double kWindow = 0.005;  // seconds
  double best_window = 0;                   // steps per second
  std::size_t dims;
  std::vector<double> actions, observation;
  std::vector<std::unique_ptr<Env>> envs;
};

void measure(const EnvOptions& options, std::size_t envs, std::size_t threads, double seconds) {
  const EnvSpec spec = ask_spec(options, {});
  const std::size_t players = spec.saves_state ? threads : 1;
  std::latch made(static_cast<std::ptrdiff_t>(players) + 1);  // before the clocks start
  std::vector<double> rates(players), windows(players);
  std::vector<std::jthread> crowd;
  for (std::size_t i = 0; i < players; ++i) {
    crowd.emplace_back([&, i] {
      Player player(spec, options, {envs / players, threads, true}, 1000 * i);
      made.arrive_and_wait();
      rates[i] = player.steps_per_second(seconds);
      windows[i] = player.best_window;
    });
  }
  made.arrive_and_wait();
  const std::clock_t begin = std::clock();  // of all threads
  crowd.clear();                            // joins
  const double rate = std::accumulate(rates.begin(), rates.end(), 0.0);
  std::printf("%.1f %.1f %.1f\n", rate, rate * seconds * CLOCKS_PER_SEC / static_cast<double>(std::clock() - begin),
              std::accumulate(windows.begin(), windows.end(), 0.0));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return std::fprintf(stderr, "usage: env_steps ID ENVIRONMENTS THREADS SECONDS\n"), 2;
  EnvOptions options;
  options.id = argv[1];
  try {
    measure(options, static_cast<std::size_t>(std::atoi(argv[2])), static_cast<std::size_t>(std::atoi(argv[3])),
            std::atof(argv[4]));
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "env_steps: %s\n", e.what()), 2;
  }
}
