#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "gipo/vla/vla_model.h"

namespace gipo {

// A model that several threads call: the learner, which changes it, and those that act with it. One at a time, in the order in
// which they came, so that actors come to their turn between two micro-batches of an update.
class SharedModel {
 public:
  explicit SharedModel(std::unique_ptr<LargeModel> model) : model_(std::move(model)) {}

  template <class Work>
  auto with(Work&& work) {
    const Turn turn(*this);
    return work(*model_);
  }
  // LargeModel::act for one of several actors. Those who wait when their turn comes are served as one batch, of up to `most`
  // samples. Nobody waits for others to ask: each has its actions once what was being computed is done, and that batch.
  VlaOutputs act(const VlaInputs& inputs, std::int64_t most);
  // Out of turn, for one who reads weights and has seen to it that nobody changes them.
  const LargeModel& still() const { return *model_; }

 private:
  struct Turn {
    explicit Turn(SharedModel& m) : of(m) {
      std::unique_lock lock(of.mutex_);
      const std::uint64_t mine = of.next_++;
      of.changed_.wait(lock, [&] { return of.now_ == mine; });
    }
    ~Turn() {
      const std::lock_guard lock(of.mutex_);
      ++of.now_;
      of.changed_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    SharedModel& of;
  };
  struct Request;
  void serve(LargeModel& model, std::int64_t most);

  std::unique_ptr<LargeModel> model_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_ = 0, now_ = 0;
  std::deque<Request*> asked_;  // in the order in which they came
  bool queued_ = false;         // one of those who asked waits for a turn
};

}  // namespace gipo
