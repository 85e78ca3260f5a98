#include <cstring>

#include "gipo/bench/bench.h"
#include "gipo/replay/replay_buffer.h"

namespace gipo {
namespace {

// 50,000 transitions of the size of HalfCheetah's: 17 observations, 6 actions.
std::vector<BenchRow> measure() {
  constexpr std::size_t kCapacity = 50'000, kLength = 64, kBatch = 512;
  const ReplayShape shape{kCapacity, kLength, plain_transition(17, 6, false)};
  ReplayBuffer replay(shape, RandomStream(1));
  Segment segment(kLength, shape.transition);
  segment.length = kLength;
  const auto insert_next = [&] {
    ++segment.sequence;
    replay.insert(segment);
  };
  while (replay.evicted() == 0) insert_next();
  Batch batch(kBatch, shape.transition);
  const std::size_t bytes = ReplayBuffer::bytes_per_transition(shape);
  std::vector<char> from(kCapacity * bytes, 1), to(kBatch * bytes);
  // As much as the transitions hold, from one place after the other to one small one, or back.
  std::size_t at = 0;
  const auto move = [&](std::size_t count, bool in) {
    at = (at + 37 * count * bytes) % (from.size() - count * bytes);
    std::memcpy(in ? from.data() + at : to.data(), in ? to.data() : from.data() + at, count * bytes);
  };
  const auto [insert, copy_in] = best_seconds(insert_next, [&] { move(kLength, true); });
  const auto [sample, copy_out] = best_seconds([&] { replay.sample(batch); }, [&] { move(kBatch, false); });
  const auto row = [&](const char* name, double seconds, double copy, std::size_t count) {
    return BenchRow{name, 1e9 * seconds / static_cast<double>(count), "ns/transition", "memcpy of as many bytes",
                    copy / seconds};
  };
  const double held = static_cast<double>(replay.bytes()) / kCapacity;
  return {row("replay insert 64", insert, copy_in, kLength),
          row("replay sample 512", sample, copy_out, kBatch),
          {"replay memory", held, "bytes/transition", "its payload", held / static_cast<double>(bytes)}};
}

}  // namespace

std::vector<BenchCase> bench_replay() { return {{"replay", measure}}; }

}  // namespace gipo
