#include "gipo/replay/replay_buffer.h"

#include <algorithm>

#include "gipo/core/error.h"

namespace gipo {
namespace {

template <class From, class To>
void copy_rows(const From& from, std::size_t from_row, std::size_t rows, To& to, std::size_t to_row,
               std::size_t width) {
  std::copy_n(from.data() + from_row * width, rows * width, to.data() + to_row * width);
}

constexpr std::uint64_t kTerminated = 1, kTruncated = 2;

// One more for every segment of full length, for its final observation, and a sixteenth at least: shorter segments may
// make it grow.
std::size_t first_rows(const ReplayShape& shape) {
  return shape.capacity + shape.capacity / std::min<std::size_t>(16, shape.segment_length) +
         2 * (shape.segment_length + 1);
}

}  // namespace

ReplayBuffer::ReplayBuffer(const ReplayShape& shape, RandomStream random)
    : shape_(shape), random_(random), moments_(shape.observation_size) {
  GIPO_CHECK(shape.capacity >= shape.segment_length && shape.segment_length > 0);
  grow(first_rows(shape));
  records_.grow(shape.capacity / shape.segment_length + 1);
}

double ReplayBuffer::bytes_needed(const ReplayShape& shape) {
  const auto capacity = static_cast<double>(shape.capacity);
  const double order = shape.sampling == Sampling::kEpochs ? capacity * sizeof(Step) : 0;
  return static_cast<double>(first_rows(shape)) * static_cast<double>(bytes_per_transition(shape)) +
         capacity / static_cast<double>(shape.segment_length) * sizeof(Record) + order;
}

std::size_t ReplayBuffer::bytes_per_transition(const ReplayShape& shape) {
  const std::size_t stored = shape.stored ? 2 : 0;
  return sizeof(float) * (shape.observation_size + 2 * shape.action_dims + 1 + stored) + sizeof(std::int64_t);
}

std::size_t ReplayBuffer::bytes() const {
  const std::lock_guard lock(mutex_);
  return rows_ * bytes_per_transition(shape_) + records_.size() * sizeof(Record) + order_.capacity() * sizeof(Step);
}

void ReplayBuffer::insert(const Segment& segment) {
  std::unique_lock lock(mutex_);
  GIPO_CHECK(segment.length > 0 && segment.length <= shape_.segment_length);
  make_room(segment.length, lock);
  Record r;
  r.row = find_rows(segment.length + 1);
  r.length = segment.length;
  r.first_env_step = segment.first_env_step;
  r.env_step_stride = segment.env_step_stride;
  r.actor = segment.actor;
  r.incarnation = segment.incarnation;
  r.sequence = segment.sequence;
  r.flags = (segment.terminated ? kTerminated : 0) | (segment.truncated ? kTruncated : 0);
  for_each_array(arena_, segment, [&](auto& held, const auto& given, std::size_t width) {
    copy_rows(given, 0, r.length, held, r.row, width);
  });
  copy_rows(segment.observation, r.length, 1, arena_.observation, r.row + r.length, shape_.observation_size);
  next_row_ = r.row + r.length + 1;
  push_record(r);
  size_ += r.length;
  inserted_ += r.length;
  moments_.add(segment.observation_sums);
  returns_.add(segment.discounted_sums);
}

void ReplayBuffer::push_record(const Record& r) {
  if (record_count_ == records_.size()) {
    std::rotate(records_.begin(), records_.begin() + first_record_, records_.end());
    first_record_ = 0;
    records_.grow(records_.size() + records_.size() / 8 + 64);
  }
  record(record_count_++) = r;
}

void ReplayBuffer::evict_oldest() {
  GIPO_CHECK(record_count_ > 0);
  size_ -= record(0).length;
  evicted_ += record(0).length;
  first_record_ = (first_record_ + 1) % records_.size();
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
  grow(rows_ + rows_ / 16 + needed);
  return next_row_;
}

// The oldest rows come to the front, all in place: there is never a second copy of what is held. Rows that were skipped
// at the end of the ring stay between the others until those before them are evicted.
void ReplayBuffer::grow(std::size_t rows) {
  const std::size_t oldest = record_count_ > 0 ? record(0).row : 0;
  for_each_array(arena_, arena_, [&](auto& array, auto&, std::size_t width) {
    std::rotate(array.begin(), array.begin() + oldest * width, array.end());
    array.grow(rows * width);
  });
  const auto moved = [&](std::size_t row) { return row >= oldest ? row - oldest : row + rows_ - oldest; };
  for (std::size_t i = 0; i < record_count_; ++i) record(i).row = moved(record(i).row);
  if (record_count_ > 0) {
    const Record& newest = record(record_count_ - 1);
    next_row_ = newest.row + newest.length + 1;
  } else {
    next_row_ = 0;
  }
  rows_ = rows;
}

bool ReplayBuffer::sample(Batch& batch) {
  const std::lock_guard lock(mutex_);
  if (record_count_ == 0) return false;
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
  const std::size_t width = shape_.observation_size;
  Step from = uniform_step();
  for (std::size_t at = 0; at < batch.size; from = {random_.below(record_count_), 0}) {
    const Record& r = record(from.record);
    const std::size_t offset = from.offset, count = std::min(r.length - offset, batch.size - at);
    for_each_array(batch, arena_, [&](auto& to, const auto& held, std::size_t values) {
      copy_rows(held, r.row + offset, count, to, at, values);
    });
    for (std::size_t t = 0; t < count; ++t) batch.env_step[at + t] = r.env_step(offset + t);
    copy_rows(arena_.observation, r.row + offset + count, 1, batch.observation, batch.size + batch.stretches.size(),
              width);
    batch.stretches.push_back({at, count, offset + count == r.length && (r.flags & kTerminated) != 0});
    at += count;
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
  }
  for_each_array(batch, arena_, [&](auto& to, const auto& from, std::size_t width) {
    if (width == 1) {
      for (std::size_t at = 0; at < batch.size; ++at) to[at] = from[sampled_rows_[at]];
    } else {
      for (std::size_t at = 0; at < batch.size; ++at) copy_rows(from, sampled_rows_[at], 1, to, at, width);
    }
  });
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

void ReplayBuffer::copy_moments(RunningMoments& out) const {
  const std::lock_guard lock(mutex_);
  out = moments_;
}

void ReplayBuffer::copy_returns(RunningMoments& out) const {
  const std::lock_guard lock(mutex_);
  out = returns_;
}

}  // namespace gipo
