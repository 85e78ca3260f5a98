// Replay bytes. A buffer goes on working after a load, whether that succeeded or not.
#include <algorithm>
#include <cmath>
#include <string>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/replay/replay_buffer.h"

namespace {

using gipo::Sampling;

constexpr std::size_t kLongest = 4, kObservation = 2, kActions = 1;
constexpr Sampling kSamplings[] = {Sampling::kSegments, Sampling::kTransitions, Sampling::kEpochs};

gipo::TransitionSpec transition() {
  gipo::TransitionSpec spec = gipo::plain_transition(kObservation, kActions);
  spec.choices = {3};
  return spec;
}
gipo::ReplayShape shape(Sampling sampling) { return {12, kLongest, transition(), sampling}; }

void insert(gipo::ReplayBuffer& replay, std::size_t length) {
  gipo::Segment segment(kLongest, transition());
  segment.length = length;
  segment.sequence = replay.inserted();
  replay.insert(segment);
}

// Everything that reaches the learner is a number, and every action one that the task has.
void check_sample(gipo::ReplayBuffer& replay) {
  gipo::Batch batch(6, transition());
  if (!replay.sample(batch)) return;
  const auto finite = [](float v) { return std::isfinite(v); };
  GIPO_CHECK(std::ranges::all_of(batch.observation(), finite));
  GIPO_CHECK(std::ranges::all_of(batch.reward(), finite));
  GIPO_CHECK(std::ranges::all_of(batch.action(), [](float a) { return a >= 0 && a < 3; }));
}

}  // namespace

std::vector<std::string> valid_inputs() {
  std::vector<std::string> inputs;
  for (const Sampling sampling : kSamplings) {
    gipo::ReplayBuffer replay(shape(sampling), gipo::RandomStream(1));
    for (const std::size_t length : {4, 1, 3, 2, 4}) insert(replay, length);
    check_sample(replay);
    gipo::ByteWriter out;
    replay.save(out);
    inputs.push_back(out.take());
  }
  return inputs;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const Sampling sampling : kSamplings) {
    gipo::ReplayBuffer replay(shape(sampling), gipo::RandomStream(1));
    insert(replay, 2);
    gipo::ByteReader in({reinterpret_cast<const char*>(data), size});
    try {
      replay.load(in);
    } catch (const gipo::Error&) {
    }
    for (const std::size_t length : {1, 4, 3, 4, 2}) {
      check_sample(replay);
      insert(replay, length);
    }
    check_sample(replay);
    gipo::ByteWriter out;
    replay.save(out);
    gipo::ByteReader again(out.bytes());
    replay.load(again);
  }
  return 0;
}
