#pragma once

#include <cstdint>
#include <deque>
#include <string>

namespace gipo {

class ByteWriter;
class ReplayBuffer;

// The replay at one moment, written by another thread while training goes on. Segments do not change once they are
// held, and the oldest are both the first to be written and the first to be evicted: they are read where they lie,
// without the replay's lock, and copied only where they are evicted before their turn. Made by the replay.
class ReplaySnapshot {
 public:
  // Copied at once, so that the writer is that far ahead of what is evicted from the start.
  static constexpr std::size_t kBytesKeptAtFirst = 1024 * 1024;
  // Of copies at any time. Beyond it an insert waits for the writer, so that a slow disk cannot fill the memory.
  static constexpr std::size_t kMostBytesKept = 4 * 1024 * 1024;

  ~ReplaySnapshot();
  ReplaySnapshot(const ReplaySnapshot&) = delete;
  ReplaySnapshot& operator=(const ReplaySnapshot&) = delete;

  // The bytes of ReplayBuffer::save when this was made. Once.
  void save(ByteWriter& out);
  std::size_t bytes_kept() const;

 private:
  friend class ReplayBuffer;
  explicit ReplaySnapshot(ReplayBuffer& replay) : replay_(replay) {}
  void keep_next();
  bool take_kept(ByteWriter& out);
  bool copy_held(ByteWriter& out);

  ReplayBuffer& replay_;
  std::string head_, order_;  // what stands before and after the segments
  // Segments by their numbers, under the replay's lock: those before kept_end_ are written or in kept_; those of
  // [kept_end_, end_) must stay where they are held; [kept_end_, read_end_) are being read and must not even be moved.
  std::uint64_t kept_end_ = 0, read_end_ = 0, end_ = 0;
  std::deque<std::string> kept_;
  std::size_t kept_bytes_ = 0;
};

}  // namespace gipo
