// The replay buffer as bytes and back; docs/checkpoints.md describes them.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/policy/distribution.h"
#include "gipo/replay/replay_buffer.h"

namespace gipo {
namespace {

// Beyond these no run comes; what is read below them can be counted on without overflow.
constexpr std::uint64_t kMostCount = 1ull << 62;
constexpr std::int64_t kMostVersion = std::int64_t{1} << 62;

}  // namespace

// Calls f with the rows of one segment in every array: its steps, and for observations also the final one.
template <class Rows, class F>
void ReplayBuffer::for_each_row_range(Rows& arena, std::size_t row, std::size_t length, F&& f) const {
  for_each_array(arena, arena, [&](auto& array, auto&, std::size_t width) {
    const std::size_t rows = static_cast<const void*>(&array) == &arena.observation ? length + 1 : length;
    f(std::span(array).subspan(row * width, rows * width));
  });
}

// Segments in order, each with its rows: independent of where the arena happens to hold them.
void ReplayBuffer::save(ByteWriter& out) const {
  const std::lock_guard lock(mutex_);
  save_head(out);
  for (std::size_t i = 0; i < record_count_; ++i) save_record(record(i), out);
  save_order(out);
}

void ReplayBuffer::save_head(ByteWriter& out) const {
  random_.save(out);
  moments_.save(out);
  returns_.save(out);
  out.value(inserted_);
  out.value(evicted_);
  out.value<std::uint64_t>(record_count_);
}

void ReplayBuffer::save_record(const Record& record, ByteWriter& out) const {
  Record r = record;
  r.row = 0;
  out.value(r);
  for_each_row_range(arena_, record.row, r.length, [&](auto rows) { out.array(rows); });
}

void ReplayBuffer::save_order(ByteWriter& out) const {
  out.array(order_);
  out.value<std::uint64_t>(order_at_);
  out.value(order_inserted_);
}

void ReplayBuffer::load(ByteReader& in) {
  const std::lock_guard lock(mutex_);
  GIPO_CHECK(snapshot_ == nullptr);
  const auto forget = [&] {
    record_count_ = size_ = next_row_ = first_record_ = 0;
    inserted_ = evicted_ = order_inserted_ = 0;
    order_.clear();
    order_at_ = 0;
  };
  forget();
  try {
    random_.load(in);
    moments_.load(in);
    returns_.load(in);
    inserted_ = in.value<std::uint64_t>();
    evicted_ = in.value<std::uint64_t>();
    for (auto left = in.value<std::uint64_t>(); left > 0; --left) load_segment(in);
    if (inserted_ > kMostCount || evicted_ != inserted_ - size_) throw Error("saved replay has counts that do not fit");
    load_order(in);
  } catch (const Error&) {
    forget();
    throw;
  }
}

void ReplayBuffer::load_segment(ByteReader& in) {
  auto r = in.value<Record>();
  if (r.length == 0 || r.length > shape_.segment_length || size_ + r.length > shape_.capacity) {
    throw Error("saved replay holds a segment that does not fit: length " + std::to_string(r.length));
  }
  r.row = find_rows(r.length + 1);
  const auto refuse_if = [](bool bad) {
    if (bad) throw Error("saved replay holds a number that no step has: not finite, no such action or no such version");
  };
  for_each_row_range(arena_, r.row, r.length, [&](auto rows) {
    in.array_into(rows);
    if constexpr (std::is_same_v<typename decltype(rows)::value_type, float>) {
      refuse_if(!std::all_of(rows.begin(), rows.end(), [](float v) { return std::isfinite(v); }));
    } else {
      refuse_if(std::any_of(rows.begin(), rows.end(), [](auto v) { return v < 0 || v > kMostVersion; }));
    }
  });
  const std::size_t dims = shape_.action_dims;
  refuse_if(!possible_actions(shape_.choices, {arena_.action.data() + r.row * dims, r.length * dims}));
  next_row_ = r.row + r.length + 1;
  push_record(r);
  size_ += r.length;
}

void ReplayBuffer::load_order(ByteReader& in) {
  order_ = in.array<Step>();
  order_at_ = in.value<std::uint64_t>();
  order_inserted_ = in.value<std::uint64_t>();
  // A pass of an earlier rollout is never taken up again: its steps need not be there any more.
  if (order_inserted_ > inserted_) throw Error("saved replay holds a pass over steps that are not there yet");
  if (order_at_ > order_.size()) throw Error("saved replay holds a pass beyond its end");
  for (const Step& s : order_) {
    if (order_inserted_ == inserted_ && (s.record >= record_count_ || s.offset >= record(s.record).length)) {
      throw Error("saved replay holds a pass over steps that are not there");
    }
  }
}

std::uint32_t ReplayBuffer::fingerprint() const {
  return checksum_of([this](ByteWriter& out) { save(out); });
}

}  // namespace gipo
