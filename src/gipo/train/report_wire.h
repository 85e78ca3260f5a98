#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "gipo/io/bytes.h"
#include "gipo/train/actor_report.h"

namespace gipo {

// A report as one message, for an actor in another process or on another host. Little-endian, one after the other:
//   u8[8]  "gipo.rep"
//   u64    bytes of the whole message
//   u32    format, 1
//   u32    CRC-32C of the 20 bytes before it: a receiver can trust the size before it waits for the rest
//   u64    actor, incarnation, sequence
//   i64    environment steps
//   u64    episodes, and for each
//     u64 env, i64 number, f64 return, i64 length, i64 env steps of the run, i64 version,
//     u64 flags: 1 terminated, 2 success known, 4 at any step, 8 at the last one
//   u64    kinds of fault, and for each u64 bytes of its name, the name, u64 rejected segments
//   u64    bytes of why the last one was rejected, that text
//   u64    segments, and for each u64 bytes of its message, the message (data/wire.h)
//   u32    CRC-32C of all before it
inline constexpr std::size_t kReportHeadBytes = 24;

// Replaces what the writer holds, which keeps its memory.
void encode_report(const ActorReport& report, ByteWriter& out);

// Bytes of the message that begins so. Throws Error where no report does.
std::size_t report_bytes(std::string_view head);

// Makes reports of messages, in buffers that it uses again. Owned by one thread.
class ReportDecoder {
 public:
  // sums: as decode of data/wire.h has it.
  ReportDecoder(std::size_t segment_length, TransitionSpec transition, bool sums = true);

  // Good until the next call. Throws Error, naming what was expected and what came, for another format, a message cut
  // short or too long, damaged bytes, counts that no actor has, and for all that a segment is refused for.
  ActorReport& decode(std::string_view message);
  // The next report of so many bytes that come from elsewhere, which may hold more of them. Large columns are not copied
  // on their way.
  ActorReport& decode(std::size_t bytes, const ByteReader::Source& next);

 private:
  void clear();
  class Input;
  void read(Input& in);

  std::size_t segment_length_;
  TransitionSpec transition_;
  bool sums_;
  ActorReport report_;
  std::vector<Segment> spare_;
};

}  // namespace gipo
