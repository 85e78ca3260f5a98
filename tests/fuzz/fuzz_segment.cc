// Segment bytes. A segment is safe to look at after a load, whether that succeeded or not.
#include <algorithm>
#include <string>

#include "gipo/core/error.h"
#include "gipo/data/segment.h"
#include "gipo/io/bytes.h"

namespace {
constexpr std::size_t kLongest = 4, kObservation = 3, kActions = 2;
}

std::vector<std::string> valid_inputs() {
  gipo::Segment segment(kLongest, gipo::plain_transition(kObservation, kActions));
  gipo::ByteWriter out;
  segment.length = 3;
  segment.terminated = true;
  std::ranges::fill(segment.version(), 7);
  segment.save(out);
  return {out.bytes()};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gipo::Segment segment(kLongest, gipo::plain_transition(kObservation, kActions));
  gipo::ByteReader in({reinterpret_cast<const char*>(data), size});
  try {
    segment.load(in);
  } catch (const gipo::Error&) {
  }
  GIPO_CHECK(segment.length <= kLongest);
  segment.finite();
  return 0;
}
