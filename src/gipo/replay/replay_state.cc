// The replay buffer as bytes and back; docs/checkpoints.md describes them.

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/replay/replay_buffer.h"

namespace gipo {
namespace {

// Beyond this no run comes; what is read below it can be counted on without overflow.
constexpr std::uint64_t kMostCount = 1ull << 62;
constexpr unsigned kContextShift = 8;  // in the flags of a segment, above which its context is counted

}  // namespace

// Segments in order, each with its rows: independent of where the arena happens to hold them.
void ReplayBuffer::save(ByteWriter& out) const {
  const std::lock_guard lock(mutex_);
  save_head(out);
  for (std::size_t i = 0; i < record_count_; ++i) save_record(record(i), out);
  save_end(out);
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
  out.value<std::uint64_t>(record.length);
  out.value(record.first_env_step);
  out.value(record.env_step_stride);
  out.value(record.actor);
  out.value(record.incarnation);
  out.value(record.sequence);
  out.value<std::uint64_t>(record.flags | std::uint64_t{record.context} << kContextShift);
  for (std::size_t c = 0; c < arena_.size(); ++c) out.append(held(c, record));
}

void ReplayBuffer::save_end(ByteWriter& out) const {
  taken_.save(out);
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
    taken_.clear();
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
    taken_.load(in);
    load_order(in);
  } catch (const Error&) {
    forget();
    throw;
  }
}

void ReplayBuffer::load_segment(ByteReader& in) {
  Record r;
  const auto length = in.value<std::uint64_t>();
  r.first_env_step = in.value<double>();
  r.env_step_stride = in.value<double>();
  r.actor = in.value<std::uint64_t>();
  r.incarnation = in.value<std::uint64_t>();
  r.sequence = in.value<std::uint64_t>();
  const auto flags_and_context = in.value<std::uint64_t>();
  const std::uint64_t context = flags_and_context >> kContextShift,
                      flags = flags_and_context - (context << kContextShift);
  if (length == 0 || length > shape_.segment_length || size_ + length > shape_.capacity || flags > 3 ||
      context > shape_.transition.context()) {
    throw Error("saved replay holds a segment that does not fit: length " + std::to_string(length) + ", flags " +
                std::to_string(flags) + ", context " + std::to_string(context));
  }
  r.length = static_cast<std::uint32_t>(length);
  r.flags = static_cast<std::uint16_t>(flags);
  r.context = static_cast<std::uint16_t>(context);
  if (!taken_.take({r.actor, r.incarnation, r.sequence})) {
    throw Error("saved replay holds a segment of actor " + std::to_string(r.actor) + " twice, or out of order");
  }
  r.row = find_rows(r.rows());
  r.start = push_record(r);
  for (std::size_t c = 0; c < arena_.size(); ++c) {
    const std::span<std::byte> rows = held(c, r);
    in.bytes_into(rows);
    layout_.refuse_impossible(c, rows, "saved replay");
  }
  next_row_ = r.row + r.rows();
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
