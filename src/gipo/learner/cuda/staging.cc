#include "gipo/learner/cuda/staging.h"

#include <algorithm>

#include "gipo/core/error.h"
#include "gipo/data/encode.h"

namespace gipo::cuda {

// The observations last: of the rows behind the stretches only those that are there are copied.
Staging::Places Staging::places_of(const LearnerSetup& setup) {
  const auto n = static_cast<std::size_t>(setup.learner.batch_size), dims = setup.model.distribution.dims();
  const bool stored = setup.advantage.mode == AdvantageMode::kStored;
  const std::size_t masks = setup.model.distribution.masked ? setup.model.distribution.mask_size() : 0;
  std::size_t end = 0;
  const auto place = [&end](std::size_t bytes) {
    const std::size_t begin = (end + 255) / 256 * 256;
    end = begin + bytes;
    return begin;
  };
  place(sizeof(BatchHeader));
  Places p{};
  p.stretches = place(stored ? 0 : n * sizeof(CardStretch));
  p.action = place(n * dims * sizeof(float));
  p.behaviour = place(n * dims * sizeof(float));
  p.reward = place(n * sizeof(float));
  p.gap = place(n * sizeof(float));
  p.advantage = place(stored ? n * sizeof(float) : 0);
  p.target = place(stored ? n * sizeof(float) : 0);
  p.mask = place(n * masks);
  p.observation = place((stored ? n : 2 * n) * setup.model.observation_size * sizeof(float));
  p.end = end;
  return p;
}

std::size_t staging_bytes(const LearnerSetup& setup) { return Staging::places_of(setup).end; }

Staging::Staging(const LearnerSetup& setup, bool reads_gaps)
    : fields_(setup.model.fields),
      n_(static_cast<std::size_t>(setup.learner.batch_size)),
      observation_size_(setup.model.observation_size),
      mask_size_(setup.model.distribution.masked ? setup.model.distribution.mask_size() : 0),
      mask_field_(mask_field(setup.model.fields)),
      plain_(is_plain(setup.model.fields)),
      stored_(setup.advantage.mode == AdvantageMode::kStored),
      reads_gaps_(reads_gaps),
      places_(places_of(setup)),
      pinned_(places_.end),
      card_(places_.end),
      columns_(fields_.size()),
      encoded_(plain_ ? 0 : (stored_ ? n_ : 2 * n_) * observation_size_) {}

void Staging::put(const Batch& batch, const LearnerBook& book, const Rates& rates, cudaStream_t stream) {
  copied_.wait();  // the last copy from here; long since over
  const std::size_t rows = stored_ ? batch.size : batch.rows();
  auto& header = *on_host<BatchHeader>(0);
  header = {static_cast<int>(rows), static_cast<int>(batch.stretches.size()), rates.policy, rates.value};
  std::ranges::copy(batch.action(), on_host<float>(places_.action));
  std::ranges::copy(batch.log_prob(), on_host<float>(places_.behaviour));
  std::ranges::transform(batch.reward(), on_host<float>(places_.reward),
                         [&](float reward) { return book.reward_scale.apply(reward); });
  if (stored_) {
    std::ranges::copy(batch.advantage(), on_host<float>(places_.advantage));
    std::ranges::copy(batch.target(), on_host<float>(places_.target));
  } else {
    std::ranges::transform(batch.stretches, on_host<CardStretch>(places_.stretches), [](const Stretch& s) {
      return CardStretch{static_cast<int>(s.begin), static_cast<int>(s.length), s.terminated};
    });
  }
  if (reads_gaps_) {
    std::ranges::transform(batch.version(), on_host<float>(places_.gap),
                           [&](std::int64_t version) { return static_cast<float>(book.version - version); });
  }
  batch.locate_observation(0, columns_);
  if (mask_size_ > 0) {
    const auto* mask = reinterpret_cast<const std::uint8_t*>(columns_[mask_field_]);
    std::copy_n(mask, n_ * mask_size_, on_host<std::uint8_t>(places_.mask));
  }
  const float* floats = reinterpret_cast<const float*>(columns_[0]);
  if (!plain_) {
    encode(fields_, columns_, rows, encoded_.data());
    floats = encoded_.data();
  }
  book.scale.apply<float>({floats, rows * observation_size_}, on_host<float>(places_.observation));

  if (used_) used_->hold_back(stream);
  const std::size_t bytes = places_.observation + rows * observation_size_ * sizeof(float);
  check(cudaMemcpyAsync(card_.data(), pinned_.data(), bytes, cudaMemcpyHostToDevice, stream), "a batch");
  copied_.record(stream);
}

}  // namespace gipo::cuda
