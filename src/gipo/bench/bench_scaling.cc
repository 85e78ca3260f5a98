#include <fmt/format.h>

#include "gipo/bench/bench.h"
#include "gipo/bench/collector.h"
#include "gipo/bench/made_up.h"
#include "gipo/core/thread_pool.h"

namespace gipo {
namespace {

BenchRow update(const std::string& name, std::int64_t width, std::size_t batch_size) {
  const LearnerSetup setup = made_up_setup(8, ActionSpace::discrete(2), {width, width}, batch_size);
  ThreadPool pool(1);
  const auto learner = make_learner(setup, RandomStream(1), pool);
  const Batch batch = made_up_batch(batch_size, setup.model);
  const auto [seconds, sgemm] = best_beside_sgemm([&] { learner->update(batch, {0, false}); });
  return {name, 1e6 * seconds, "us/update", "sgemm 2048^3",
          update_operations(setup.model, batch_size) / seconds / sgemm};
}

BenchRow act(const std::string& name, std::size_t envs) {
  Collector collector("CartPole-v1", envs);
  const double seconds = best_seconds([&] { collector.step(); });
  return {name, 1e9 * seconds / static_cast<double>(envs), "ns/env step", "", 0};
}

BenchRow sample(const std::string& name, std::size_t capacity) {
  constexpr std::size_t kBatch = 512, kLength = 64;
  ReplayBuffer replay({capacity, kLength, plain_transition(17, 6)}, RandomStream(1));
  Segment segment(kLength, plain_transition(17, 6));
  segment.length = kLength;
  while (replay.evicted() == 0) {
    ++segment.sequence;
    replay.insert(segment);
  }
  Batch batch(kBatch, plain_transition(17, 6));
  const double seconds = best_seconds([&] { replay.sample(batch); });
  return {name, 1e9 * seconds / kBatch, "ns/transition", "", 0};
}

}  // namespace

// What grows with what: an update with batch and width, acting with environments, sampling with the capacity.
std::vector<BenchCase> bench_scaling() {
  std::vector<BenchCase> cases;
  const auto add = [&](const std::string& name, const std::function<BenchRow(const std::string&)>& measure) {
    cases.push_back({name, [=] { return std::vector{measure(name)}; }});
  };
  for (const std::size_t batch : {64u, 128u, 256u, 512u, 1024u, 2048u, 4096u, 8192u}) {
    add(fmt::format("batch {}", batch), [=](const std::string& name) { return update(name, 64, batch); });
  }
  for (const std::int64_t width : {32, 64, 128, 256, 512, 1024}) {
    add(fmt::format("width {}", width), [=](const std::string& name) { return update(name, width, 256); });
  }
  for (const std::size_t envs : {1u, 4u, 16u, 64u, 256u}) {
    add(fmt::format("environments {}", envs), [=](const std::string& name) { return act(name, envs); });
  }
  for (const std::size_t capacity : {1'000u, 10'000u, 100'000u, 1'000'000u}) {
    add(fmt::format("capacity {}", capacity), [=](const std::string& name) { return sample(name, capacity); });
  }
  return cases;
}

}  // namespace gipo
