// A batch on its way to the card: one piece of pinned memory, one copy, one piece of the card's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gipo/learner/cuda/loss.h"
#include "gipo/learner/cuda/memory.h"
#include "gipo/learner/learner_book.h"

namespace gipo::cuda {

struct Rates {
  double policy = 0, value = 0, entropy = 0;  // learning rates; weight of the entropy bonus
};

class Staging {
 public:
  Staging(const LearnerSetup& setup, bool reads_gaps);

  // Encodes and scales the observations that are floats, and begins the copy. Those that encoders read go as they are.
  void put(const Batch& batch, const LearnerBook& book, const Rates& rates, cudaStream_t stream);
  const Event& copied() const { return copied_; }
  // Nothing may be put here again before that.
  void used(const Event& until) { used_ = &until; }

  // Places on the card; null where a batch has none.
  const BatchHeader* header() const { return at<BatchHeader>(0); }
  const CardStretch* stretches() const { return at<CardStretch>(places_.stretches); }
  const float* action() const { return at<float>(places_.action); }
  const float* behaviour() const { return at<float>(places_.behaviour); }
  const float* reward() const { return at<float>(places_.reward); }
  const float* gap() const { return reads_gaps_ ? at<float>(places_.gap) : nullptr; }
  const float* advantage() const { return stored_ ? at<float>(places_.advantage) : nullptr; }
  const float* target() const { return stored_ ? at<float>(places_.target) : nullptr; }
  const std::uint8_t* mask() const { return mask_size_ > 0 ? at<std::uint8_t>(places_.mask) : nullptr; }
  const float* observation() const { return at<float>(places_.observation); }
  std::vector<const std::byte*> raw() const;  // [fields] where encoders read them
  // Of a policy with memory.
  const float* state() const { return at<float>(places_.state); }
  std::span<const Sequence> sequences() const { return sequences_; }  // of the host

  std::size_t rows() const { return rows_; }  // of the last batch, without contexts

 private:
  // Observations last, by arrays: of the rows of each only those that are there are copied.
  struct Places {
    std::size_t stretches, action, behaviour, reward, gap, advantage, target, mask, state, observation, end;
    std::vector<std::size_t> raw;  // [fields]
  };
  friend std::size_t staging_bytes(const LearnerSetup& setup);
  static Places places_of(const LearnerSetup& setup, std::size_t rows);
  void make_room(std::size_t rows);
  void put_observations(const LearnerBook& book, std::size_t rows, cudaStream_t stream);
  void copy(std::size_t begin, std::size_t bytes, cudaStream_t stream) const;

  template <class T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(card_.data() + offset);
  }
  template <class T>
  T* on_host(std::size_t offset) const {
    return reinterpret_cast<T*>(pinned_.data() + offset);
  }

  LearnerSetup setup_;
  std::size_t n_, observation_size_, mask_size_, mask_field_;
  bool plain_, stored_, reads_gaps_;
  std::size_t room_ = 0;  // for observations, contexts included
  Places places_{};
  PinnedArray<std::byte> pinned_;
  CardArray<std::byte> card_;
  std::vector<const std::byte*> columns_;  // [fields] of the batch
  std::vector<float> encoded_;             // [room, observation_size] of typed fields
  std::vector<Sequence> sequences_;        // [stretches] of a policy with memory
  std::size_t rows_ = 0;
  Event copied_;
  const Event* used_ = nullptr;
};

std::size_t staging_bytes(const LearnerSetup& setup);

}  // namespace gipo::cuda
