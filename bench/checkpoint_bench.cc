// How long training waits for a checkpoint: the copy of its state; the rest is written in the background. The replay
// is the bulk of it: 50,000 transitions of the size of HalfCheetah's.
#include <benchmark/benchmark.h>

#include "gipo/core/bytes.h"
#include "gipo/replay/replay_buffer.h"

namespace gipo {
namespace {

void checkpoint_copy(benchmark::State& state) {
  const ReplayShape shape{50'000, 64, 17, 6, Sampling::kSegments, {}};
  ReplayBuffer replay(shape, RandomStream(1));
  Segment segment(64, 17, 6);
  segment.length = 64;
  while (replay.evicted() == 0) replay.insert(segment);
  const double payload = static_cast<double>(replay.size() * ReplayBuffer::bytes_per_transition(shape));
  std::size_t size = 0;
  for (auto _ : state) {
    ByteWriter out;
    out.reserve(static_cast<std::size_t>(1.25 * payload));
    replay.save(out);
    size = out.bytes().size();
    benchmark::DoNotOptimize(size);
  }
  state.counters["size_over_payload"] = static_cast<double>(size) / payload;
}
BENCHMARK(checkpoint_copy)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gipo
