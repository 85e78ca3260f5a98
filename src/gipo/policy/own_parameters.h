#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string_view>

namespace gipo {

class SharedModel;

// AdamW as a learner asks a policy for it that keeps its parameters itself; of the policy and of the critic.
struct OwnStep {
  std::array<double, 2> rates{};
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0, max_norm = 1;
  double average = 1;  // what the newest parameters come to count in their moving average, where there is one
};

// What a policy does itself whose parameters no learner holds: of the large model in place there is one copy, which learns and
// acts. Calls of policy_gradient and value_gradient are then only noted down.
class OwnParameters {
 public:
  virtual ~OwnParameters() = default;

  // The gradients of what was noted down: the norms of the policy's and of the critic's.
  virtual std::array<double, 2> find_gradients() = 0;
  virtual void step(const OwnStep& step) = 0;
  virtual std::shared_ptr<SharedModel> share() const = 0;  // with actors

  // Parameters and moments as bytes, in order, so many in all; and back. With ranks all of them call these, and the functions of
  // rank 0 are asked alone.
  virtual std::size_t state_bytes() = 0;
  virtual void save(const std::function<void(std::string_view)>& take) = 0;
  virtual void load(const std::function<void(char* out, std::size_t size)>& give) = 0;
  // While it lives, step waits: what save reads stays as it is, and another thread may call that. Null: it cannot be held.
  virtual std::shared_ptr<void> hold() { return nullptr; }
};

}  // namespace gipo
