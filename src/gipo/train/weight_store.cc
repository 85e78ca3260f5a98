#include "gipo/train/weight_store.h"

#include <utility>

#include "gipo/core/sole_holder.h"
#include "gipo/learner/learner.h"

namespace gipo {

void WeightStore::publish(const Learner& learner) {
  // A snapshot that only this store knows can be written again. Nobody can come to hold it meanwhile: get gives out
  // the newest alone, and the newest is never in spare_.
  std::shared_ptr<Weights> next;
  for (std::size_t i = 0; i < spare_.size() && !next; ++i) {
    if (!sole_holder(spare_[i])) continue;
    next = std::exchange(spare_[i], spare_.back());
    spare_.pop_back();
  }
  if (!next) next = std::make_shared<Weights>();
  learner.copy_weights(*next);
  replace(std::move(next));
}

void WeightStore::publish(Weights weights) { replace(std::make_shared<Weights>(std::move(weights))); }

void WeightStore::replace(std::shared_ptr<Weights> next) {
  const std::lock_guard lock(mutex_);
  if (newest_) spare_.push_back(std::move(newest_));
  newest_ = std::move(next);
}

std::shared_ptr<const Weights> WeightStore::get() const {
  const std::lock_guard lock(mutex_);
  return newest_;
}

}  // namespace gipo
