#include "gipo/train/event_file.h"

#include <cmath>
#include <string_view>

#include "gipo/core/checksum.h"

namespace gipo {
namespace {

// A field of a protocol buffer begins with its number and how its value is stored.
enum class Wire : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
constexpr std::uint32_t kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5;
constexpr std::uint32_t kSummaryValue = 1;
constexpr std::uint32_t kValueTag = 1, kValueSimple = 2;

// Little-endian, as core/bytes.h asserts of every machine that builds this.
template <class T>
void append_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void append_key(std::string& out, std::uint32_t field, Wire wire) {
  append_varint(out, field << 3 | static_cast<std::uint32_t>(wire));
}

void append_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  append_key(out, field, Wire::kBytes);
  append_varint(out, bytes.size());
  out.append(bytes);
}

void append_wall_time(std::string& event, double seconds) {
  append_key(event, kEventWallTime, Wire::kFixed64);
  append_raw(event, seconds);
}

}  // namespace

EventFile::EventFile(std::string path, double wall_time, std::uint64_t keep) : file_(std::move(path), keep) {
  // A resumed run goes on in a file that has its first event already.
  if (file_.position() > 0) return;
  append_wall_time(event_, wall_time);
  append_bytes(event_, kEventFileVersion, "brain.Event:2");
  write_record();
}

void EventFile::scalars(std::int64_t step, double wall_time, std::span<const std::pair<std::string, double>> values) {
  summary_.clear();
  for (const auto& [tag, number] : values) {
    const auto narrow = static_cast<float>(number);
    if (!std::isfinite(narrow)) continue;  // nothing to draw
    value_.clear();
    append_bytes(value_, kValueTag, tag);
    append_key(value_, kValueSimple, Wire::kFixed32);
    append_raw(value_, narrow);
    append_bytes(summary_, kSummaryValue, value_);
  }
  event_.clear();
  append_wall_time(event_, wall_time);
  append_key(event_, kEventStep, Wire::kVarint);
  append_varint(event_, static_cast<std::uint64_t>(step));
  append_bytes(event_, kEventSummary, summary_);
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
