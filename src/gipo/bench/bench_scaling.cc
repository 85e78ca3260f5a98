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

BenchRow sample(std::size_t capacity) {
  constexpr std::size_t kBatch = 512, kLength = 64;
  ReplayBuffer replay({capacity, kLength, 17, 6, Sampling::kSegments, {}}, RandomStream(1));
  Segment segment(kLength, 17, 6);
  segment.length = kLength;
  while (replay.evicted() == 0) replay.insert(segment);
  Batch batch(kBatch, 17, 6);
  const double seconds = best_seconds([&] { replay.sample(batch); });
  return {fmt::format("capacity {}", capacity), 1e9 * seconds / kBatch, "ns/transition", "", 0};
}

}  // namespace

// What grows with what: an update with batch and width, acting with environments, sampling with the capacity.
std::vector<BenchRow> bench_scaling() {
  std::vector<BenchRow> rows;
  for (const std::size_t batch : {64u, 128u, 256u, 512u, 1024u, 2048u, 4096u, 8192u}) {
    rows.push_back(update(fmt::format("batch {}", batch), 64, batch));
  }
  for (const std::int64_t width : {32, 64, 128, 256, 512, 1024}) {
    rows.push_back(update(fmt::format("width {}", width), width, 256));
  }
  for (const std::size_t envs : {1u, 4u, 16u, 64u, 256u}) {
    Collector collector("CartPole-v1", envs);
    const double seconds = best_seconds([&] { collector.step(); });
    rows.push_back(
        {fmt::format("environments {}", envs), 1e9 * seconds / static_cast<double>(envs), "ns/env step", "", 0});
  }
  for (const std::size_t capacity : {1'000u, 10'000u, 100'000u, 1'000'000u}) rows.push_back(sample(capacity));
  return rows;
}

}  // namespace gipo
