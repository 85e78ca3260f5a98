#include "gipo/train/pacer.h"

#include <algorithm>
#include <utility>

namespace gipo {

Pacer::Pacer(std::function<std::int64_t(std::int64_t)> due, std::int64_t slack, bool free)
    : due_(std::move(due)), slack_(slack), free_(free) {}

void Pacer::start_at(std::int64_t env_steps, std::int64_t updates) {
  const std::lock_guard lock(mutex_);
  begun_ = finished_ = env_steps;
  updates_ = updates;
}

std::optional<std::int64_t> Pacer::begin(std::int64_t steps) {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return stopped_ || may_begin(); });
  if (stopped_) return std::nullopt;
  const std::int64_t before = begun_;
  begun_ += steps;
  const bool more = may_begin();
  lock.unlock();
  if (more) room_.notify_one();
  return before;
}

std::optional<std::int64_t> Pacer::try_begin(std::int64_t steps) {
  const std::lock_guard lock(mutex_);
  if (stopped_ || !may_begin()) return std::nullopt;
  begun_ += steps;
  return begun_ - steps;
}

Pacer::Ahead Pacer::try_begin_ahead(std::int64_t steps, std::int64_t most, std::int64_t reserve) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return {};
  const std::int64_t room = due_(updates_) + slack_ - begun_ - reserve;
  const Ahead ahead{begun_, free_ ? most : std::clamp<std::int64_t>(room / steps, 0, most)};
  begun_ += steps * ahead.blocks;
  return ahead;
}

void Pacer::end(std::int64_t leased, std::int64_t taken) {
  bool room = false;
  {
    const std::lock_guard lock(mutex_);
    begun_ -= leased - taken;
    finished_ += taken;
    room = leased != taken && may_begin();
  }
  arrived_.notify_all();
  if (room) room_.notify_one();
}

bool Pacer::wait_to_update(std::int64_t update) {
  std::unique_lock lock(mutex_);
  // A free run waits for the warm-up alone.
  arrived_.wait(lock, [&] { return stopped_ || finished_ >= due_(free_ ? 0 : update); });
  return !stopped_;
}

bool Pacer::wait_for(std::int64_t env_steps) {
  std::unique_lock lock(mutex_);
  wanted_ = env_steps;
  if (may_begin()) room_.notify_one();
  arrived_.wait(lock, [&] { return stopped_ || finished_ >= env_steps; });
  return !stopped_;
}

void Pacer::updated(std::int64_t updates_done) {
  bool room = false;
  {
    const std::lock_guard lock(mutex_);
    updates_ = updates_done;
    room = may_begin();
  }
  if (room) room_.notify_one();
}

void Pacer::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  room_.notify_all();
  arrived_.notify_all();
}

std::int64_t Pacer::env_steps() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

}  // namespace gipo
