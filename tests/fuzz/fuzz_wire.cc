// A segment from another process. What decodes is what a step can hold, and encodes to the same bytes.
#include <string>

#include "gipo/core/error.h"
#include "gipo/data/wire.h"
#include "gipo/io/bytes.h"
#include "gipo/io/checksum.h"

namespace {

constexpr std::size_t kLongest = 4;

std::vector<gipo::TransitionSpec> specs() {
  gipo::TransitionSpec mixed = gipo::plain_transition(0, 1);
  mixed.observation = {{"image", gipo::DType::kUint8, {3, 2}},
                       {"count", gipo::DType::kInt32, {2}, gipo::Role::kPolicy, {3, 2}},
                       {"place", gipo::DType::kFloat64, {1}}};
  mixed.state_size = 2;
  mixed.choices = {3};
  gipo::TransitionSpec masked = gipo::plain_transition(0, 2, false);
  masked.observation = {{"hidden", gipo::DType::kFloat32, {2}, gipo::Role::kCritic},
                        {"valid", gipo::DType::kUint8, {4}, gipo::Role::kMask},
                        {"cards", gipo::DType::kUint8, {2}, gipo::Role::kPolicy, {70, 3}},
                        {"score", gipo::DType::kInt64, {}}};
  masked.choices = {4, 0};
  return {gipo::plain_transition(3, 2, false), mixed, masked};
}

std::string encoded(const gipo::Segment& segment) {
  gipo::ByteWriter out;
  gipo::encode(segment, out);
  return out.take();
}

void check(std::string_view message, gipo::Segment& segment) {
  try {
    gipo::decode(message, segment);
  } catch (const gipo::Error&) {
    GIPO_CHECK(segment.length == 0);
    return;
  }
  GIPO_CHECK(segment.length >= 1 && segment.length <= kLongest && segment.finite());
  GIPO_CHECK(encoded(segment) == message);
}

}  // namespace

std::vector<std::string> valid_inputs() {
  std::vector<std::string> inputs;
  for (const gipo::TransitionSpec& spec : specs()) {
    gipo::Segment segment(kLongest, spec);
    for (const std::size_t length : {1, 4}) {
      segment.length = length;
      segment.discounted_sums.set(std::span(segment.discounted).first(length == 4 ? length : 0));
      inputs.push_back(encoded(segment));
    }
  }
  return inputs;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string message(reinterpret_cast<const char*>(data), size);
  for (const gipo::TransitionSpec& spec : specs()) {
    gipo::Segment segment(kLongest, spec);
    check(message, segment);
    // Behind the checksum, which no change by chance gets past.
    if (size < 4) continue;
    const std::uint32_t crc = gipo::crc32c(std::string_view(message).substr(0, size - 4));
    message.replace(size - 4, 4, reinterpret_cast<const char*>(&crc), 4);
    check(message, segment);
  }
  return 0;
}
