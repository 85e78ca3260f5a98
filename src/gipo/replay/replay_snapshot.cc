#include "gipo/replay/replay_snapshot.h"

#include <vector>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/replay/replay_buffer.h"

namespace gipo {
namespace {

constexpr std::size_t kBytesAtATime = 256 * 1024;

}  // namespace

std::unique_ptr<ReplaySnapshot> ReplayBuffer::snapshot() {
  const std::lock_guard lock(mutex_);
  GIPO_CHECK(snapshot_ == nullptr);
  std::unique_ptr<ReplaySnapshot> made(new ReplaySnapshot(*this));
  made->head_ = bytes_of([this](ByteWriter& out) { save_head(out); });
  made->order_ = bytes_of([this](ByteWriter& out) { save_end(out); });
  made->kept_end_ = made->read_end_ = first_number_;
  made->end_ = first_number_ + record_count_;
  while (made->kept_end_ < made->end_ && made->kept_bytes_ < ReplaySnapshot::kBytesKeptAtFirst) made->keep_next();
  snapshot_ = made.get();
  return made;
}

ReplaySnapshot::~ReplaySnapshot() {
  {
    const std::lock_guard lock(replay_.mutex_);
    if (replay_.snapshot_ == this) replay_.snapshot_ = nullptr;
  }
  replay_.written_.notify_all();
}

std::size_t ReplaySnapshot::bytes_kept() const {
  const std::lock_guard lock(replay_.mutex_);
  return kept_bytes_;
}

// With the lock held, as the rest of what follows but for save.
void ReplaySnapshot::keep_next() {
  const ReplayBuffer::Record& next = replay_.record(kept_end_ - replay_.first_number_);
  kept_.push_back(bytes_of([&](ByteWriter& out) { replay_.save_record(next, out); }));
  kept_bytes_ += kept_.back().size();
  read_end_ = ++kept_end_;
}

void ReplaySnapshot::save(ByteWriter& out) {
  out.append(head_);
  ByteWriter some;
  while (take_kept(some) || copy_held(some)) {
    replay_.written_.notify_all();
    out.append(some.bytes());
    some.clear();
  }
  out.append(order_);
}

bool ReplaySnapshot::take_kept(ByteWriter& out) {
  std::string taken;
  {
    const std::lock_guard lock(replay_.mutex_);
    if (kept_.empty()) return false;
    taken = std::move(kept_.front());
    kept_.pop_front();
    kept_bytes_ -= taken.size();
  }
  out.append(taken);
  return true;
}

bool ReplaySnapshot::copy_held(ByteWriter& out) {
  std::vector<ReplayBuffer::Record> records;
  {
    const std::lock_guard lock(replay_.mutex_);
    // An insert may have kept some since this was asked for.
    if (!kept_.empty()) return true;
    if (kept_end_ == end_) return false;
    const std::size_t row = replay_.layout_.step_bytes();
    for (std::size_t bytes = 0; read_end_ < end_ && bytes < kBytesAtATime; ++read_end_) {
      records.push_back(replay_.record(read_end_ - replay_.first_number_));
      bytes += row * records.back().length;
    }
  }
  for (const ReplayBuffer::Record& r : records) replay_.save_record(r, out);
  const std::lock_guard lock(replay_.mutex_);
  kept_end_ = read_end_;
  return true;
}

void ReplayBuffer::make_room(std::size_t length, std::size_t rows, std::unique_lock<std::mutex>& lock) {
  const auto reading = [this] { return snapshot_ && snapshot_->kept_end_ < snapshot_->read_end_; };
  while (true) {
    const bool full = size_ + length > shape_.capacity;
    // What an insert would overwrite or move. Another one may have made room while this waits.
    const bool evicts = full && snapshot_ && first_number_ >= snapshot_->kept_end_ && first_number_ < snapshot_->end_;
    const bool moves = snapshot_ && !full && (!free_rows(rows) || record_count_ == records_.size());
    const bool too_much = evicts && snapshot_->kept_bytes_ >= ReplaySnapshot::kMostBytesKept;
    if (too_much || ((evicts || moves) && reading())) {
      written_.wait(lock);
    } else if (full) {
      if (evicts) snapshot_->keep_next();
      evict_oldest();
    } else {
      return;
    }
  }
}

}  // namespace gipo
