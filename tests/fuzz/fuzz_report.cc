// A report from another process. What decodes encodes to the same bytes, and its segments hold what steps can hold.
#include <cstring>
#include <string>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/io/checksum.h"
#include "gipo/train/report_wire.h"

namespace {

constexpr std::size_t kLongest = 4;

std::string encoded(const gipo::ActorReport& report) {
  gipo::ByteWriter out;
  gipo::encode_report(report, out);
  return out.take();
}

void check(const std::string& message, gipo::ReportDecoder& decoder) {
  try {
    const gipo::ActorReport& report = decoder.decode(message);
    for (const gipo::Segment& s : report.segments) GIPO_CHECK(s.length >= 1 && s.length <= kLongest && s.finite());
    GIPO_CHECK(encoded(report) == message);
  } catch (const gipo::Error&) {
  }
}

}  // namespace

std::vector<std::string> valid_inputs() {
  gipo::ActorReport report;
  std::vector<std::string> inputs = {encoded(report)};
  report.episodes.push_back({1, 2, 3.0, 4, 5, 6, true, {}});
  report.rejections = {1, {{"worker_died", 1}}, "why"};
  inputs.push_back(encoded(report));
  report.segments.emplace_back(kLongest, gipo::plain_transition(3, 2));
  report.segments.back().length = 2;
  inputs.push_back(encoded(report));
  return inputs;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string message(reinterpret_cast<const char*>(data), size);
  gipo::ReportDecoder decoder(kLongest, gipo::plain_transition(3, 2));
  check(message, decoder);
  // Behind the checksums, which no change by chance gets past.
  if (size < gipo::kReportHeadBytes + 4) return 0;
  const std::uint64_t bytes = size;
  std::memcpy(message.data() + 8, &bytes, sizeof bytes);
  for (const std::size_t at : {gipo::kReportHeadBytes - 4, size - 4}) {
    const std::uint32_t crc = gipo::crc32c(std::string_view(message).substr(0, at));
    std::memcpy(message.data() + at, &crc, sizeof crc);
  }
  check(message, decoder);
  return 0;
}
