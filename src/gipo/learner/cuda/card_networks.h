// The networks of a learner on a card: from a batch to their outputs, and from the derivatives by these to gradients.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gipo/learner/cuda/staging.h"
#include "gipo/learner/cuda/step.h"

namespace gipo::cuda {

// What an update computes of the policy.
enum class Kind { kAll, kRatios, kValuesAlone };

// Where the learner has what they read and write. N: the batch size.
struct NetworkPlaces {
  float *policy = nullptr, *critic = nullptr;  // parameters
  float* average = nullptr;                    // the policy's; null: nobody looks at it
  float *policy_gradient = nullptr, *critic_gradient = nullptr;
  const float *d_outputs = nullptr, *d_value = nullptr;  // [N, outputs], [N]
};

class CardNetworks {
 public:
  virtual ~CardNetworks() = default;

  virtual const float* outputs() const = 0;          // [N, outputs]
  virtual const float* average_outputs() const = 0;  // the same; null: there are none
  virtual const float* values() const = 0;           // [rows]

  // Put into the stream. The second leaves gradients as parts, of which these are: the policy's and the critic's, whose
  // parameters begin at `critic_base` of the flat buffers.
  virtual void forward(Kind kind, const Staging& batch) = 0;
  virtual void backward(Kind kind, const Staging& batch) = 0;
  virtual void gradient_parts(int critic_base, std::vector<GradientPart>& policy,
                              std::vector<GradientPart>& critic) const = 0;

  // Work that calls forward and backward with these, as it can be run again and again for batches of one shape: as one
  // graph, where that is possible.
  virtual std::function<void()> record(Kind kind, const Staging& batch, const std::function<void()>& work) = 0;
  virtual std::size_t shape_of(const Staging& batch) const = 0;
};

// The MLPs of this folder, and libtorch's networks.
std::unique_ptr<CardNetworks> make_mlp_networks(const LearnerSetup& setup, const NetworkPlaces& places,
                                                cudaStream_t stream);
std::unique_ptr<CardNetworks> make_torch_networks(const LearnerSetup& setup, const NetworkPlaces& places,
                                                  cudaStream_t stream);
// What the first take of the card, in bytes.
double mlp_bytes(const LearnerSetup& setup);

// Of the observations of a batch: with what follows each stretch, if anybody asks for its value.
inline int rows_of(const LearnerSetup& setup) {
  const auto n = static_cast<int>(setup.learner.batch_size);
  return setup.advantage.mode == AdvantageMode::kStored ? n : 2 * n;
}

}  // namespace gipo::cuda
