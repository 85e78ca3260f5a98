#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gipo/core/random.h"
#include "gipo/data/batch.h"
#include "gipo/data/segment.h"
#include "gipo/policy/scale.h"
#include "gipo/replay/growing_array.h"
#include "gipo/replay/high_water.h"
#include "gipo/replay/options.h"

namespace gipo {

struct ReplayShape {
  std::size_t capacity = 0;        // transitions
  std::size_t segment_length = 0;  // the longest segment
  TransitionSpec transition;
  Sampling sampling = Sampling::kSegments;
};

class ReplaySnapshot;

// Actor -> insert -> [FIFO over segments, capacity in transitions] -> sample -> Batch.
// One of the two objects that cross threads: every member function may be called from any thread. The order of inserts
// and samples decides everything in it; lockstep mode fixes that order.
class ReplayBuffer {
 public:
  ReplayBuffer(const ReplayShape& shape, RandomStream random);

  // Copies the segment in and evicts the oldest ones beyond the capacity. Waits where a snapshot is so slow to be
  // written that too many segments would have to be kept for it. Takes each segment once: false, and nothing is done,
  // where its (incarnation, sequence) is not greater than the last that was taken of its actor.
  bool insert(const Segment& segment);
  // Fills the whole batch, or returns false when nothing is held yet. Every transition held is equally likely at every
  // place of the batch.
  bool sample(Batch& batch);

  std::size_t size() const;          // transitions held
  std::size_t segments() const;      // segments held
  std::uint64_t inserted() const;    // transitions, ever
  std::uint64_t evicted() const;     // transitions, ever
  std::uint64_t duplicates() const;  // segments refused because they were taken before, by this object
  // Moments of every observation ever inserted, for the observation scale.
  void copy_moments(RunningMoments& out) const;
  // Those of before the first, of a run that goes on from another's weights.
  void begin_moments(const RunningMoments& before);
  // The same of the discounted returns, for the scale of rewards.
  void copy_returns(RunningMoments& out) const;

  void save(ByteWriter& out) const;
  // What save would write now, to be written while this goes on. One at a time; it must not outlive this.
  std::unique_ptr<ReplaySnapshot> snapshot();
  // Throws Error where the bytes are not those of such a buffer, and then holds nothing.
  void load(ByteReader& in);
  std::uint32_t fingerprint() const;  // checksum of what save writes

  // Its payload; a segment's final observation and its state come on top.
  static std::size_t bytes_per_transition(const ReplayShape& shape);
  std::size_t bytes() const;  // of memory that it has taken, for all that is or can be held
  // The same before it is made, in segments as long as they can be.
  static double bytes_needed(const ReplayShape& shape);

 private:
  struct Record {           // one segment held; as large as a cache line, since samples jump from one to any other
    std::size_t row = 0;    // of its first step
    std::size_t start = 0;  // its row in the columns that have one for each segment
    double first_env_step = 0, env_step_stride = 0;
    std::uint64_t actor = 0, incarnation = 0, sequence = 0;
    std::uint32_t length = 0;
    std::uint16_t flags = 0;    // bit 0: terminated, bit 1: truncated
    std::uint16_t context = 0;  // observations of before it
    std::size_t rows() const { return std::size_t{length} + 1 + context; }
    double env_step(std::size_t offset) const { return first_env_step + env_step_stride * static_cast<double>(offset); }
  };
  // One column of what is held; what insert and sample need of it lies together.
  struct Array : GrowingArray<std::byte> {
    explicit Array(const Column& c) : row_bytes(c.row_bytes()), rows(c.rows) {}
    std::size_t row_bytes;
    Column::Rows rows;
    std::byte* row(std::size_t r) { return data() + r * row_bytes; }
  };
  struct Step {  // one transition held
    std::uint64_t record = 0, offset = 0;
  };

  std::size_t in_ring(std::size_t i) const { return i < records_.size() ? i : i - records_.size(); }  // quicker than %
  Record& record(std::size_t i) { return records_[in_ring(first_record_ + i)]; }
  const Record& record(std::size_t i) const { return records_[in_ring(first_record_ + i)]; }
  std::size_t push_record(const Record& r);  // its start
  void make_room(std::size_t length, std::size_t rows, std::unique_lock<std::mutex>& lock);
  void evict_oldest();
  std::optional<std::size_t> free_rows(std::size_t needed) const;  // adjacent ones
  std::size_t find_rows(std::size_t needed);                       // makes the arena larger where there are none
  void grow(std::size_t needed);
  void grow_records();
  // All that the arena holds of a segment in one column.
  std::span<std::byte> held(std::size_t column, const Record& r);
  std::span<const std::byte> held(std::size_t column, const Record& r) const;
  void save_head(ByteWriter& out) const;
  void save_record(const Record& record, ByteWriter& out) const;
  void save_end(ByteWriter& out) const;
  void load_segment(ByteReader& in);
  void load_order(ByteReader& in);
  void sample_segments(Batch& batch);
  void copy_stretches(Batch& batch);
  void copy_contexts(Batch& batch);
  std::size_t frames_in(std::size_t column) const;  // of a batch
  void copy_frames(Batch& batch, std::size_t column);
  void copy_moment(Batch& batch, std::size_t column, std::size_t to, const Record& r, std::ptrdiff_t moment);
  void sample_steps(Batch& batch);
  Step uniform_step();
  Step next_of_epoch();

  friend class ReplaySnapshot;
  mutable std::mutex mutex_;
  ReplaySnapshot* snapshot_ = nullptr;  // the one that is being written
  std::condition_variable written_;     // some of it
  ReplayShape shape_;
  RandomStream random_;
  RunningMoments moments_, returns_{1};
  GrowingArray<Record> records_;  // ring
  std::size_t first_record_ = 0, record_count_ = 0;
  std::uint64_t first_number_ = 0;  // of the oldest record, counted from the first ever
  std::size_t size_ = 0, next_row_ = 0;
  std::uint64_t inserted_ = 0, evicted_ = 0, duplicates_ = 0;
  HighWater taken_;

  // One array for each column. A ring of rows; a segment of T steps takes T+1 adjacent ones, the last for its final
  // observation, and those of its context. Columns of starts have a row for each record instead.
  TransitionLayout layout_;
  std::vector<Array> arena_;
  std::size_t rows_ = 0;
  // Of the batch that is being made: the rows of single steps; the first rows and the starts of stretches, and which
  // records these are of.
  std::vector<std::size_t> sampled_rows_, sampled_starts_, sampled_records_;

  // kEpochs: the pass under way.
  std::vector<Step> order_;
  std::size_t order_at_ = 0;
  std::uint64_t order_inserted_ = 0;  // inserted_ when the order was made; a new rollout begins a new pass
};

}  // namespace gipo
