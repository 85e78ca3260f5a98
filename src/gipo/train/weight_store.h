#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "gipo/train/collect.h"

namespace gipo {

class Learner;

// Learner -> publish -> [newest weights] -> get -> actors, evaluator. One of the two objects that cross threads: get may
// be called from any thread, publish from the learner's. A snapshot is immutable while anyone holds it; its buffers are
// used again once nobody does.
class WeightStore : public WeightSource {
 public:
  void publish(const Learner& learner);
  void publish(Weights weights);
  std::shared_ptr<const Weights> get() const;
  std::shared_ptr<const Weights> newest() override { return get(); }

 private:
  void replace(std::shared_ptr<Weights> next);

  mutable std::mutex mutex_;
  std::shared_ptr<Weights> newest_;
  std::vector<std::shared_ptr<Weights>> spare_;
};

}  // namespace gipo
