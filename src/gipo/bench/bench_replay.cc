#include <algorithm>
#include <cstring>

#include "gipo/bench/bench.h"
#include "gipo/replay/replay_buffer.h"

namespace gipo {
namespace {

constexpr std::size_t kLength = 64, kSampled = 512;
// Of the memory that the reference copies to and from: more than any cache holds.
constexpr std::size_t kMostCopied = 256 * 1024 * 1024;

std::vector<BenchRow> measure(const std::string& name, std::size_t capacity, const TransitionSpec& transition) {
  const ReplayShape shape{capacity, kLength, transition};
  ReplayBuffer replay(shape, RandomStream(1));
  Segment segment(kLength, transition);
  segment.length = kLength;
  const auto insert_next = [&] {
    ++segment.sequence;
    replay.insert(segment);
  };
  while (replay.evicted() == 0) insert_next();
  Batch batch(kSampled, transition);
  const std::size_t bytes = ReplayBuffer::bytes_per_transition(shape);
  std::vector<char> from(std::min(capacity * bytes, kMostCopied), 1), to(kSampled * bytes);
  // As much as the transitions hold, from one place after the other to one small one, or back.
  std::size_t at = 0;
  const auto move = [&](std::size_t count, bool in) {
    at = (at + 37 * count * bytes) % (from.size() - count * bytes);
    std::memcpy(in ? from.data() + at : to.data(), in ? to.data() : from.data() + at, count * bytes);
  };
  const auto [insert, copy_in] = best_seconds(insert_next, [&] { move(kLength, true); });
  const auto [sample, copy_out] = best_seconds([&] { replay.sample(batch); }, [&] { move(kSampled, false); });
  const auto row = [&](const char* what, double seconds, double copy, std::size_t count) {
    return BenchRow{name + what, 1e9 * seconds / static_cast<double>(count), "ns/transition", "memcpy of as many bytes",
                    copy / seconds};
  };
  const double held = static_cast<double>(replay.bytes()) / static_cast<double>(capacity);
  return {row(" insert 64", insert, copy_in, kLength),
          row(" sample 512", sample, copy_out, kSampled),
          {name + " memory", held, "bytes/transition", "its payload", held / static_cast<double>(bytes)}};
}

// Of the size of HalfCheetah's: 17 observations, 6 actions.
std::vector<BenchRow> measure_vectors() { return measure("replay", 50'000, plain_transition(17, 6, false)); }

// 2.1 GB of pictures, a byte for each of three colours of a pixel.
std::vector<BenchRow> measure_images() {
  TransitionSpec transition;
  transition.observation = {{"image", DType::kUint8, {84, 84, 3}}};
  transition.action_dims = 1;
  transition.stored = false;
  return measure("replay of images", 100'000, transition);
}

}  // namespace

std::vector<BenchCase> bench_replay() { return {{"replay", measure_vectors}, {"replay of images", measure_images}}; }

}  // namespace gipo
