#include "gipo/learner/cuda/staging.h"

#include <algorithm>

#include "gipo/core/error.h"
#include "gipo/data/encode.h"

namespace gipo::cuda {

Staging::Places Staging::places_of(const LearnerSetup& setup, std::size_t rows) {
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
  p.state = place(n * setup.model.state_size() * sizeof(float));
  p.observation = place(rows * setup.model.observation_size * sizeof(float));
  for (const Field& field : setup.model.fields) p.raw.push_back(place(field.raw ? rows * field.bytes() : 0));
  p.end = end;
  return p;
}

std::size_t staging_bytes(const LearnerSetup& setup) {
  const auto n = static_cast<std::size_t>(setup.learner.batch_size);
  return Staging::places_of(setup, setup.advantage.mode == AdvantageMode::kStored ? n : 2 * n).end;
}

Staging::Staging(const LearnerSetup& setup, bool reads_gaps)
    : setup_(setup),
      n_(static_cast<std::size_t>(setup.learner.batch_size)),
      observation_size_(setup.model.observation_size),
      mask_size_(setup.model.distribution.masked ? setup.model.distribution.mask_size() : 0),
      mask_field_(mask_field(setup.model.fields)),
      plain_(is_plain(setup.model.fields)),
      stored_(setup.advantage.mode == AdvantageMode::kStored),
      reads_gaps_(reads_gaps),
      columns_(setup.model.fields.size()) {
  make_room(stored_ ? n_ : 2 * n_);
}

// Contexts alone need more of it later: graphs, which know places, are of policies without memory.
void Staging::make_room(std::size_t rows) {
  if (used_) used_->wait();
  room_ = rows;
  places_ = places_of(setup_, rows);
  pinned_ = PinnedArray<std::byte>(places_.end);
  card_ = CardArray<std::byte>(places_.end);
  encoded_.resize(plain_ ? 0 : rows * observation_size_);
}

std::vector<const std::byte*> Staging::raw() const {
  std::vector<const std::byte*> all;
  for (const std::size_t place : places_.raw) all.push_back(at<std::byte>(place));
  return all;
}

void Staging::copy(std::size_t begin, std::size_t bytes, cudaStream_t stream) const {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(card_.data() + begin, pinned_.data() + begin, bytes, cudaMemcpyHostToDevice, stream),
        "a batch");
}

void Staging::put(const Batch& batch, const LearnerBook& book, const Rates& rates, cudaStream_t stream) {
  copied_.wait();  // the last copy from here; long since over
  const std::size_t rows = rows_ = stored_ ? batch.size : batch.rows();
  std::size_t all = rows;
  for (const Stretch& s : batch.stretches) all = std::max(all, s.context_begin + s.context);
  if (all > room_) make_room(all + all / 4);
  auto& header = *on_host<BatchHeader>(0);
  header = {static_cast<int>(rows), static_cast<int>(batch.stretches.size()), rates.policy, rates.value, rates.entropy};
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
  if (setup_.model.has_memory()) {
    sequences_.clear();
    for (const Stretch& s : batch.stretches) {
      sequences_.push_back({s.begin, s.length, batch.size + sequences_.size(), s.context_begin, s.context});
    }
    std::copy_n(batch.state().data(), sequences_.size() * setup_.model.state_size(), on_host<float>(places_.state));
  }
  if (used_) used_->hold_back(stream);
  copy(0, places_.observation, stream);
  put_observations(book, all, stream);
  copied_.record(stream);
}

void Staging::put_observations(const LearnerBook& book, std::size_t rows, cudaStream_t stream) {
  const Fields& fields = setup_.model.fields;
  if (observation_size_ > 0) {
    const float* floats = reinterpret_cast<const float*>(columns_[0]);
    if (!plain_) {
      encode(fields, columns_, rows, encoded_.data());
      floats = encoded_.data();
    }
    book.scale.apply<float>({floats, rows * observation_size_}, on_host<float>(places_.observation));
    copy(places_.observation, rows * observation_size_ * sizeof(float), stream);
  }
  for (std::size_t f = 0; f < fields.size(); ++f) {
    if (!fields[f].raw) continue;
    std::copy_n(columns_[f], rows * fields[f].bytes(), on_host<std::byte>(places_.raw[f]));
    copy(places_.raw[f], rows * fields[f].bytes(), stream);
  }
}

}  // namespace gipo::cuda
