// How long training waits for a checkpoint of the replay, which is the bulk of it: until the snapshot is there. It is
// written in the background; how long that takes from memory to checksum is the second. 50,000 transitions of the size
// of HalfCheetah's.
#include <benchmark/benchmark.h>

#include "gipo/io/bytes.h"
#include "gipo/replay/replay_buffer.h"
#include "gipo/replay/replay_snapshot.h"

namespace gipo {
namespace {

const ReplayShape kShape{50'000, 64, plain_transition(17, 6), Sampling::kSegments};

void fill(ReplayBuffer& replay) {
  Segment segment(64, plain_transition(17, 6));
  segment.length = 64;
  for (; replay.evicted() == 0; ++segment.sequence) replay.insert(segment);
}

void checkpoint_snapshot(benchmark::State& state) {
  ReplayBuffer replay(kShape, RandomStream(1));
  fill(replay);
  for (auto _ : state) benchmark::DoNotOptimize(replay.snapshot());
}
BENCHMARK(checkpoint_snapshot)->Unit(benchmark::kMillisecond);

void checkpoint_save(benchmark::State& state) {
  ReplayBuffer replay(kShape, RandomStream(1));
  fill(replay);
  for (auto _ : state) {
    benchmark::DoNotOptimize(checksum_of([&](ByteWriter& out) { replay.snapshot()->save(out); }));
  }
}
BENCHMARK(checkpoint_save)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gipo
