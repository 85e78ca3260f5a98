#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "gipo/train/collect.h"

namespace gipo {

// Holds actors and learner of an async run to the dial: env steps may run ahead of what is due by `slack` (plus one
// round of an actor), and an update waits for the env steps it is due. One of the two may always go on, so they
// never wait for each other. Any thread may call any function.
class Pacer : public StepLease {
 public:
  // due(u): environment steps that update u needs. free: actors never wait.
  Pacer(std::function<std::int64_t(std::int64_t)> due, std::int64_t slack, bool free);

  // Where a resumed run stands, before anyone waits.
  void start_at(std::int64_t env_steps, std::int64_t updates);

  // Counts steps before they are taken, so that the bound holds whatever the number of actors. None once stopped.
  std::optional<std::int64_t> begin(std::int64_t steps) override;
  // The same where nobody would have to wait; none otherwise.
  std::optional<std::int64_t> try_begin(std::int64_t steps);
  // As many blocks of steps, up to `most`, as leave `reserve` steps that may begin. `blocks` may be 0.
  struct Ahead {
    std::int64_t env_steps = 0, blocks = 0;
  };
  Ahead try_begin_ahead(std::int64_t steps, std::int64_t most, std::int64_t reserve);
  void end(std::int64_t leased, std::int64_t taken) override;
  // Before update u; false once stopped. Finished steps are what counts here.
  bool wait_to_update(std::int64_t update);
  // Until that many steps are finished, which actors may take whatever is due; false once stopped.
  bool wait_for(std::int64_t env_steps);
  void updated(std::int64_t updates_done);
  void stop();

  std::int64_t env_steps() const;  // finished

 private:
  bool may_begin() const { return free_ || begun_ < due_(updates_) + slack_ || begun_ < wanted_; }

  const std::function<std::int64_t(std::int64_t)> due_;
  const std::int64_t slack_;
  const bool free_;
  mutable std::mutex mutex_;
  std::condition_variable room_;     // for steps to begin: whoever begins wakes the next, while there is some
  std::condition_variable arrived_;  // steps that an update waits for
  std::int64_t begun_ = 0, finished_ = 0, updates_ = 0;
  std::int64_t wanted_ = 0;  // steps that are waited for beyond those that are due
  bool stopped_ = false;
};

}  // namespace gipo
