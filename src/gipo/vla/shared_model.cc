#include "gipo/vla/shared_model.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "gipo/core/error.h"

namespace gipo {
namespace {

// Several inputs as one.
struct Joined {
  VlaInputs inputs;
  std::vector<std::uint8_t> images;
  std::vector<float> proprio;

  void add(const VlaInputs& more) {
    GIPO_CHECK(inputs.n == 0 || inputs.cameras == more.cameras);
    inputs.n += more.n;
    inputs.cameras = more.cameras;
    images.insert(images.end(), more.images.begin(), more.images.end());
    proprio.insert(proprio.end(), more.proprio.begin(), more.proprio.end());
    inputs.prompts.insert(inputs.prompts.end(), more.prompts.begin(), more.prompts.end());
    inputs.images = images, inputs.proprio = proprio;
  }
};

}  // namespace

struct SharedModel::Request {
  const VlaInputs& inputs;
  VlaOutputs outputs = {};
  std::exception_ptr error = {};
  bool taken = false, done = false;  // into a batch; which was computed
};

VlaOutputs SharedModel::act(const VlaInputs& inputs, std::int64_t most) {
  Request mine{inputs};
  std::unique_lock lock(mutex_);
  asked_.push_back(&mine);
  while (!mine.done) {
    if (queued_ || mine.taken) {
      changed_.wait(lock, [&] { return mine.done || (!queued_ && !mine.taken); });
      continue;
    }
    queued_ = true;
    lock.unlock();
    with([&](LargeModel& model) { serve(model, most); });
    lock.lock();
  }
  if (mine.error) std::rethrow_exception(mine.error);
  return std::move(mine.outputs);
}

// Those who ask from now on are the next batch.
void SharedModel::serve(LargeModel& model, std::int64_t most) {
  std::vector<Request*> batch;
  {
    const std::lock_guard lock(mutex_);
    std::int64_t n = 0;
    while (!asked_.empty() && (batch.empty() || n + asked_.front()->inputs.n <= most)) {
      batch.push_back(asked_.front());
      batch.back()->taken = true;
      n += batch.back()->inputs.n;
      asked_.pop_front();
    }
    queued_ = false;
  }
  changed_.notify_all();
  VlaOutputs out;
  std::exception_ptr error;
  try {
    if (batch.size() == 1) {
      out = model.act(batch[0]->inputs);
    } else {
      Joined all;
      for (const Request* r : batch) all.add(r->inputs);
      out = model.act(all.inputs);
    }
  } catch (...) {
    error = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    auto logit = out.logits.begin();
    auto value = out.values.begin();
    const std::size_t logits = out.values.empty() ? 0 : out.logits.size() / out.values.size();
    for (Request* r : batch) {
      const auto n = static_cast<std::size_t>(r->inputs.n);
      if (!error) {
        r->outputs.logits.assign(logit, logit + static_cast<std::ptrdiff_t>(n * logits));
        r->outputs.values.assign(value, value + static_cast<std::ptrdiff_t>(n));
        logit += static_cast<std::ptrdiff_t>(n * logits), value += static_cast<std::ptrdiff_t>(n);
      }
      r->error = error;
      r->done = true;
    }
  }
  changed_.notify_all();
}

}  // namespace gipo
