// Steps of one task per second of the clock, and of processor time, for bench/peers:
// `env_steps ID ENVIRONMENTS THREADS SECONDS`. Every thread plays its share of the environments in turn, with random
// actions drawn beforehand.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

#include "gipo/env/env.h"

namespace {

using namespace gipo;
using Clock = std::chrono::steady_clock;

std::int64_t play(const std::string& id, std::size_t count, std::uint64_t seed, Clock::time_point end) {
  std::vector<std::unique_ptr<Env>> envs;
  for (std::size_t i = 0; i < count; ++i) {
    envs.push_back(make_env(id));
    envs.back()->reset(seed + i);
  }
  const EnvSpec& spec = envs[0]->spec();
  const std::size_t dims = spec.action.dims(), drawn = 1009;
  RandomStream random(seed);
  std::vector<double> actions(drawn * dims), observation(spec.observation_size);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    actions[i] = random.uniform(spec.action.low[i % dims], spec.action.high[i % dims]);
  }
  std::int64_t steps = 0;
  while (Clock::now() < end) {
    for (const auto& env : envs) {
      const std::size_t row = static_cast<std::size_t>(steps++) % drawn;
      const StepResult r = env->step({actions.data() + row * dims, dims});
      if (r.terminated || r.truncated) env->reset();
      env->observe(observation);
    }
  }
  return steps;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return std::fprintf(stderr, "usage: env_steps ID ENVIRONMENTS THREADS SECONDS\n"), 2;
  const auto envs = static_cast<std::size_t>(std::atoi(argv[2])),
             threads = static_cast<std::size_t>(std::atoi(argv[3]));
  const double seconds = std::atof(argv[4]);
  try {
    gipo::make_env(argv[1]);  // the model is compiled before the clock starts
    const auto begin = Clock::now();
    const std::clock_t cpu_begin = std::clock();  // of all threads
    const auto end = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    std::atomic<std::int64_t> steps = 0;
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < threads; ++i) {
      workers.emplace_back([&, i] { steps += play(argv[1], envs / threads, 1000 * i, end); });
    }
    workers.clear();  // joins
    const auto total = static_cast<double>(steps);
    std::printf("%.1f %.1f\n", total / std::chrono::duration<double>(Clock::now() - begin).count(),
                total * CLOCKS_PER_SEC / static_cast<double>(std::clock() - cpu_begin));
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "env_steps: %s\n", e.what()), 2;
  }
}
