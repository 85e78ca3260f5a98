#include "gipo/replay/replay_buffer.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "gipo/core/error.h"

namespace gipo {
namespace {

using Rows = Column::Rows;

constexpr std::uint32_t kTerminated = 1, kTruncated = 2;

// Spare rows take no more than this.
constexpr std::size_t kSpareBytes = 16 * 1024 * 1024;

// More for every segment of full length, for its final observation and its context, and up to a sixteenth in all: shorter
// segments may make it grow.
std::size_t first_rows(const ReplayShape& shape, std::size_t row_bytes) {
  const std::size_t more = 1 + shape.transition.context();
  const std::size_t finals = shape.capacity / shape.segment_length * more, spare = kSpareBytes / row_bytes;
  return shape.capacity + std::max(finals, std::min(shape.capacity / 16, finals + spare)) +
         2 * (shape.segment_length + more);
}

void copy_bytes(const std::byte* from, std::byte* to, std::size_t size) {
  if (size > 0) std::memcpy(to, from, size);
}

// Rows [from[i]] of one array, one after the other; a size known when compiled takes one load and one store.
template <std::size_t kSize>
void gather(const std::byte* array, const std::vector<std::size_t>& from, std::byte* to) {
  for (std::size_t i = 0; i < from.size(); ++i) std::memcpy(to + i * kSize, array + from[i] * kSize, kSize);
}

}  // namespace

ReplayBuffer::ReplayBuffer(const ReplayShape& shape, RandomStream random)
    : shape_(shape),
      random_(random),
      moments_(floats_of(shape.transition.observation)),
      layout_(shape.transition),
      arena_(layout_.columns.begin(), layout_.columns.end()) {
  GIPO_CHECK(shape.capacity >= shape.segment_length && shape.segment_length > 0 &&
             shape.segment_length < std::numeric_limits<std::uint32_t>::max() &&
             shape.transition.context() <= std::numeric_limits<std::uint16_t>::max() &&
             (shape.transition.state_size == 0 || shape.transition.longest >= shape.segment_length));
  static_assert(sizeof(Record) == 64);
  grow(first_rows(shape, layout_.step_bytes()));
  grow_records();
}

double ReplayBuffer::bytes_needed(const ReplayShape& shape) {
  const TransitionLayout layout(shape.transition);
  const auto capacity = static_cast<double>(shape.capacity), row = static_cast<double>(layout.step_bytes());
  const double order = shape.sampling == Sampling::kEpochs ? capacity * sizeof(Step) : 0;
  return static_cast<double>(first_rows(shape, layout.step_bytes())) * row +
         capacity / static_cast<double>(shape.segment_length) *
             static_cast<double>(sizeof(Record) + layout.start_bytes()) +
         order;
}

std::size_t ReplayBuffer::bytes_per_transition(const ReplayShape& shape) {
  return TransitionLayout(shape.transition).step_bytes();
}

std::size_t ReplayBuffer::bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes =
      records_.size() * sizeof(Record) + order_.capacity() * sizeof(Step) +
      (sampled_rows_.capacity() + sampled_starts_.capacity() + sampled_records_.capacity()) * sizeof(std::size_t) +
      taken_.bytes();
  for (const auto& array : arena_) bytes += array.size();
  return bytes;
}

bool ReplayBuffer::insert(const Segment& segment) {
  std::unique_lock lock(mutex_);
  GIPO_CHECK(segment.layout().fingerprint == layout_.fingerprint);
  GIPO_CHECK(segment.length > 0 && segment.length <= shape_.segment_length);
  const HighWater::Mark mark{segment.actor, segment.incarnation, segment.sequence};
  // While this waits for a snapshot, the same one may come another way, and the mark is not yet to be saved.
  const bool may_wait = snapshot_ != nullptr;
  if (may_wait ? !taken_.is_new(mark) : !taken_.take(mark)) return ++duplicates_, false;
  make_room(segment.length, segment.length + 1 + segment.context, lock);
  if (may_wait && !taken_.take(mark)) return ++duplicates_, false;
  Record r;
  r.length = static_cast<std::uint32_t>(segment.length);
  r.context = static_cast<std::uint16_t>(segment.context);
  r.row = find_rows(r.rows());
  r.first_env_step = segment.first_env_step;
  r.env_step_stride = segment.env_step_stride;
  r.actor = segment.actor;
  r.incarnation = segment.incarnation;
  r.sequence = segment.sequence;
  r.flags = (segment.terminated ? kTerminated : 0) | (segment.truncated ? kTruncated : 0);
  r.start = push_record(r);
  const RowCounts counts = rows_of_segment(segment.length, segment.context);
  for (std::size_t c = 0; c < arena_.size(); ++c) {
    Array& array = arena_[c];
    copy_bytes(segment.table().row(c, 0), array.row(array.rows == Rows::kStart ? r.start : r.row),
               counts.of(array.rows) * array.row_bytes);
  }
  next_row_ = r.row + r.rows();
  size_ += r.length;
  inserted_ += r.length;
  moments_.add(segment.observation_sums);
  returns_.add(segment.discounted_sums);
  return true;
}

std::size_t ReplayBuffer::push_record(const Record& r) {
  if (record_count_ == records_.size()) grow_records();
  Record& next = record(record_count_++);
  next = r;
  return next.start = static_cast<std::size_t>(&next - records_.data());
}

void ReplayBuffer::grow_records() {
  const std::size_t first = shape_.capacity / shape_.segment_length + 1;
  const std::size_t wanted = records_.size() == 0 ? first : records_.size() + records_.size() / 8 + 64;
  for (Array& array : arena_) {
    if (array.rows != Rows::kStart) continue;
    array.rotate(first_record_ * array.row_bytes);
    array.grow(wanted * array.row_bytes);
  }
  records_.rotate(first_record_);
  records_.grow(wanted);
  first_record_ = 0;
  for (std::size_t i = 0; i < record_count_; ++i) records_[i].start = i;
}

std::span<std::byte> ReplayBuffer::held(std::size_t column, const Record& r) {
  Array& array = arena_[column];
  return {array.row(array.rows == Rows::kStart ? r.start : r.row),
          rows_of_segment(r.length, r.context).of(array.rows) * array.row_bytes};
}

std::span<const std::byte> ReplayBuffer::held(std::size_t column, const Record& r) const {
  return const_cast<ReplayBuffer*>(this)->held(column, r);
}

void ReplayBuffer::evict_oldest() {
  GIPO_CHECK(record_count_ > 0);
  const std::size_t length = record(0).length;
  size_ -= length;
  evicted_ += length;
  first_record_ = in_ring(first_record_ + 1);
  ++first_number_;
  --record_count_;
}

std::optional<std::size_t> ReplayBuffer::free_rows(std::size_t needed) const {
  if (record_count_ == 0) return needed <= rows_ ? std::optional<std::size_t>(0) : std::nullopt;
  const std::size_t oldest = record(0).row;
  if (next_row_ > oldest) {  // free: [next_row_, rows_) and [0, oldest)
    if (rows_ - next_row_ >= needed) return next_row_;
    if (needed < oldest) return 0;
  } else if (oldest - next_row_ > needed) {  // free: [next_row_, oldest)
    return next_row_;
  }
  return std::nullopt;
}

std::size_t ReplayBuffer::find_rows(std::size_t needed) {
  if (const std::optional<std::size_t> row = free_rows(needed)) return *row;
  // Every time all of it is moved: where it is large, the steps still grow with it.
  grow(rows_ + std::min(rows_ / 16, rows_ / 64 + kSpareBytes / layout_.step_bytes()) + needed);
  return next_row_;
}

// The oldest rows come to the front, all in place: there is never a second copy of what is held. Rows that were skipped
// at the end of the ring stay between the others until those before them are evicted.
void ReplayBuffer::grow(std::size_t rows) {
  const std::size_t oldest = record_count_ > 0 ? record(0).row : 0;
  for (Array& array : arena_) {
    if (array.rows == Rows::kStart) continue;
    array.rotate(oldest * array.row_bytes);
    array.grow(rows * array.row_bytes);
  }
  const auto moved = [&](std::size_t row) { return row >= oldest ? row - oldest : row + rows_ - oldest; };
  for (std::size_t i = 0; i < record_count_; ++i) record(i).row = moved(record(i).row);
  if (record_count_ > 0) {
    const Record& newest = record(record_count_ - 1);
    next_row_ = newest.row + newest.rows();
  } else {
    next_row_ = 0;
  }
  rows_ = rows;
}

bool ReplayBuffer::sample(Batch& batch) {
  const std::lock_guard lock(mutex_);
  if (record_count_ == 0) return false;
  GIPO_CHECK(batch.layout().fingerprint == layout_.fingerprint);
  batch.stretches.clear();
  if (shape_.sampling == Sampling::kSegments) {
    sample_segments(batch);
  } else {
    sample_steps(batch);
  }
  return true;
}

// Segments chosen uniformly and laid end to end are a renewal process. Where it is entered at a uniform step, every place
// of the batch holds each step held with the same probability (the process is stationary), whatever the lengths and
// wherever the batch cuts it. Entered at the start of a segment, it would favour short ones and the first steps of all.
void ReplayBuffer::sample_segments(Batch& batch) {
  sampled_rows_.clear();
  sampled_starts_.clear();
  sampled_records_.clear();
  Step from = uniform_step();
  for (std::size_t at = 0; at < batch.size; from = {random_.below(record_count_), 0}) {
    const Record& r = record(from.record);
    const std::size_t offset = from.offset, count = std::min<std::size_t>(r.length - offset, batch.size - at);
    for (std::size_t t = 0; t < count; ++t) batch.env_step[at + t] = r.env_step(offset + t);
    batch.stretches.push_back({at, count, offset + count == r.length && (r.flags & kTerminated) != 0, offset});
    sampled_rows_.push_back(r.row + offset);
    sampled_starts_.push_back(r.start);
    sampled_records_.push_back(from.record);
    at += count;
  }
  copy_stretches(batch);
  if (shape_.transition.state_size > 0) copy_contexts(batch);
}

// One column after the other: what is to be known of each is read once.
void ReplayBuffer::copy_stretches(Batch& batch) {
  for (std::size_t c = 0; c < arena_.size(); ++c) {
    if (frames_in(c) > 1) {
      copy_frames(batch, c);
      continue;
    }
    const Array& array = arena_[c];
    const std::byte* const held = array.data();
    std::byte* const to = batch.table().row(c, 0);
    const std::size_t size = array.row_bytes;
    for (std::size_t i = 0; i < batch.stretches.size(); ++i) {
      if (array.rows == Rows::kStart) {
        copy_bytes(held + sampled_starts_[i] * size, to + i * size, size);
        continue;
      }
      const Stretch& stretch = batch.stretches[i];
      const std::byte* const first = held + sampled_rows_[i] * size;
      copy_bytes(first, to + stretch.begin * size, stretch.length * size);
      if (array.rows == Rows::kSteps) continue;
      copy_bytes(first + stretch.length * size, to + (batch.size + i) * size, size);
    }
  }
}

std::size_t ReplayBuffer::frames_in(std::size_t column) const {
  const Fields& fields = shape_.transition.observation;
  return column < fields.size() ? static_cast<std::size_t>(fields[column].stack) : 1;
}

// All that networks see of a field at a moment of a segment, as row `to` of the batch.
void ReplayBuffer::copy_moment(Batch& batch, std::size_t column, std::size_t to, const Record& r,
                               std::ptrdiff_t moment) {
  Array& array = arena_[column];
  std::byte* out = batch.table().row(column, to);
  for (auto frame = moment + 1 - static_cast<std::ptrdiff_t>(frames_in(column)); frame <= moment; ++frame) {
    copy_bytes(array.row(r.row + row_of(frame, r.length, r.context)), out, array.row_bytes);
    out += array.row_bytes;
  }
}

void ReplayBuffer::copy_frames(Batch& batch, std::size_t column) {
  for (std::size_t i = 0; i < batch.stretches.size(); ++i) {
    const Stretch& stretch = batch.stretches[i];
    const Record& r = record(sampled_records_[i]);
    for (std::size_t t = 0; t <= stretch.length; ++t) {
      copy_moment(batch, column, t < stretch.length ? stretch.begin + t : batch.size + i, r,
                  static_cast<std::ptrdiff_t>(stretch.offset + t));
    }
  }
}

// From the state that a segment keeps to the first step of its stretch: its own context, then the steps that were skipped.
void ReplayBuffer::copy_contexts(Batch& batch) {
  std::size_t next = batch.rows();
  for (std::size_t i = 0; i < batch.stretches.size(); ++i) {
    const Record& r = record(sampled_records_[i]);
    Stretch& stretch = batch.stretches[i];
    const std::size_t before = std::min<std::size_t>(r.context, shape_.transition.burn_in);
    stretch.context_begin = next;
    stretch.context = before + stretch.offset;
    for (std::size_t n = 0; n < stretch.context; ++n, ++next) {
      const auto moment = static_cast<std::ptrdiff_t>(n) - static_cast<std::ptrdiff_t>(before);
      for (std::size_t c = 0; c < shape_.transition.observation.size(); ++c) copy_moment(batch, c, next, r, moment);
    }
  }
}

// Rejection makes every step equally likely, whatever the length of its segment.
ReplayBuffer::Step ReplayBuffer::uniform_step() {
  Step s;
  do {
    s = {random_.below(record_count_), random_.below(shape_.segment_length)};
  } while (s.offset >= record(s.record).length);
  return s;
}

void ReplayBuffer::sample_steps(Batch& batch) {
  sampled_rows_.resize(batch.size);
  for (std::size_t at = 0; at < batch.size; ++at) {
    const Step s = shape_.sampling == Sampling::kEpochs ? next_of_epoch() : uniform_step();
    const Record& r = record(s.record);
    sampled_rows_[at] = r.row + s.offset;
    batch.env_step[at] = r.env_step(s.offset);
    for (std::size_t c = 0; c < shape_.transition.observation.size(); ++c) {
      if (frames_in(c) > 1) copy_moment(batch, c, at, r, static_cast<std::ptrdiff_t>(s.offset));
    }
  }
  for (std::size_t c = 0; c < arena_.size(); ++c) {
    Array& array = arena_[c];
    const std::size_t size = array.row_bytes;
    std::byte* const to = batch.table().row(c, 0);
    if (array.rows == Rows::kStart || frames_in(c) > 1) {
      continue;  // single steps have no stretch that could begin with a state; frames were copied above
    } else if (size == 4) {
      gather<4>(array.data(), sampled_rows_, to);
    } else if (size == 8) {
      gather<8>(array.data(), sampled_rows_, to);
    } else {
      for (std::size_t at = 0; at < batch.size; ++at) copy_bytes(array.row(sampled_rows_[at]), to + at * size, size);
    }
  }
}

ReplayBuffer::Step ReplayBuffer::next_of_epoch() {
  if (order_at_ == order_.size() || order_inserted_ != inserted_) {
    order_.clear();
    for (std::size_t i = 0; i < record_count_; ++i) {
      for (std::size_t t = 0; t < record(i).length; ++t) order_.push_back({i, t});
    }
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_.below(i)]);
    order_at_ = 0;
    order_inserted_ = inserted_;
  }
  return order_[order_at_++];
}

std::size_t ReplayBuffer::size() const {
  const std::lock_guard lock(mutex_);
  return size_;
}

std::size_t ReplayBuffer::segments() const {
  const std::lock_guard lock(mutex_);
  return record_count_;
}

std::uint64_t ReplayBuffer::inserted() const {
  const std::lock_guard lock(mutex_);
  return inserted_;
}

std::uint64_t ReplayBuffer::evicted() const {
  const std::lock_guard lock(mutex_);
  return evicted_;
}

std::uint64_t ReplayBuffer::duplicates() const {
  const std::lock_guard lock(mutex_);
  return duplicates_;
}

void ReplayBuffer::begin_moments(const RunningMoments& before) {
  const std::lock_guard lock(mutex_);
  GIPO_CHECK(before.dims() == moments_.dims() && moments_.count() == 0);
  moments_ = before;
}

void ReplayBuffer::copy_moments(RunningMoments& out) const {
  const std::lock_guard lock(mutex_);
  out = moments_;
}

void ReplayBuffer::copy_returns(RunningMoments& out) const {
  const std::lock_guard lock(mutex_);
  out = returns_;
}

}  // namespace gipo
