#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "gipo/io/files.h"

namespace gipo {

// Writes scalars as TensorBoard reads them: records of {length, masked CRC of length, Event, masked CRC of Event}, the
// Events encoded as protocol buffers. Owned and used by one thread. It never reads the clock: times come from the
// caller, in seconds since 1970. Failures throw RunError.
class EventFile {
 public:
  // TensorBoard finds files whose name holds "tfevents". `keep` as in AppendFile.
  EventFile(std::string path, double wall_time, std::uint64_t keep = AppendFile::kKeepAll);

  // One Event with all scalars of a step. TensorBoard keeps 32-bit floats.
  void scalars(std::int64_t step, double wall_time, std::span<const std::pair<std::string, double>> values);
  void flush() { file_.flush(); }
  std::uint64_t position() const { return file_.position(); }

 private:
  void write_record();

  AppendFile file_;
  std::string event_, summary_, value_;  // kept between calls, so that the steady loop allocates nothing
};

}  // namespace gipo
