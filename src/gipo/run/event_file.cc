#include "gipo/run/event_file.h"

#include <cmath>

#include "gipo/io/checksum.h"
#include "gipo/io/protobuf.h"

namespace gipo {
namespace {

using namespace protobuf;

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
constexpr std::uint32_t kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5;
constexpr std::uint32_t kSummaryValue = 1;
constexpr std::uint32_t kValueTag = 1, kValueSimple = 2;

}  // namespace

EventFile::EventFile(std::string path, double wall_time, std::uint64_t keep) : file_(std::move(path), keep) {
  // A resumed run goes on in a file that has its first event already.
  if (file_.position() > 0) return;
  append(event_, kEventWallTime, wall_time);
  append(event_, kEventFileVersion, "brain.Event:2");
  write_record();
}

void EventFile::scalars(std::int64_t step, double wall_time, std::span<const std::pair<std::string, double>> values) {
  summary_.clear();
  for (const auto& [tag, number] : values) {
    const auto narrow = static_cast<float>(number);
    if (!std::isfinite(narrow)) continue;  // nothing to draw
    value_.clear();
    append(value_, kValueTag, tag);
    append(value_, kValueSimple, narrow);
    append(summary_, kSummaryValue, value_);
  }
  event_.clear();
  append(event_, kEventWallTime, wall_time);
  append(event_, kEventStep, step);
  append(event_, kEventSummary, summary_);
  write_record();
}

void EventFile::write_record() {
  std::string& framing = value_;
  framing.clear();
  append_raw(framing, static_cast<std::uint64_t>(event_.size()));
  append_raw(framing, masked_crc32c(framing));
  file_.append(framing);
  file_.append(event_);
  framing.clear();
  append_raw(framing, masked_crc32c(event_));
  file_.append(framing);
}

}  // namespace gipo
