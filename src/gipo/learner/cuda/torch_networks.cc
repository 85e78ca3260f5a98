// libtorch's networks between the kernels of this folder. What libtorch is stays unknown here.
#include <algorithm>

#include "gipo/learner/cuda/card_networks.h"
#include "gipo/policy/device_networks.h"

namespace gipo::cuda {
namespace {

constexpr int kWarmUps = 3;  // before a recording, so that all that is made or chosen at a first time is

class TorchCardNetworks final : public CardNetworks {
 public:
  TorchCardNetworks(const LearnerSetup& setup, const NetworkPlaces& places, cudaStream_t stream)
      : setup_(setup),
        places_(places),
        rows_(static_cast<std::size_t>(rows_of(setup))),
        outputs_(static_cast<std::size_t>(setup.learner.batch_size) * setup.model.distribution.outputs()),
        average_outputs_(places.average ? outputs_.size() : 0),
        values_(rows_) {
    DeviceBuffers buffers;
    buffers.policy = places.policy;
    buffers.critic = places.critic;
    buffers.average = places.average;
    buffers.policy_gradient = places.policy_gradient;
    buffers.critic_gradient = places.critic_gradient;
    buffers.outputs = outputs_.data();
    buffers.average_outputs = average_outputs_.data();
    buffers.values = values_.data();
    buffers.d_outputs = places.d_outputs;
    buffers.d_values = places.d_value;
    networks_ = make_device_networks(setup.model, learner_room(setup), buffers, stream);
  }

  const float* outputs() const override { return outputs_.data(); }
  const float* average_outputs() const override { return average_outputs_.data(); }
  const float* values() const override { return values_.data(); }

  void forward(Kind kind, const Staging& batch) override {
    DeviceInput input;
    input.floats = batch.observation();
    input.raw = batch.raw();
    input.rows = shape_of(batch);
    input.state = batch.state();
    input.sequences = batch.sequences();
    networks_->forward(input, kind != Kind::kValuesAlone);
  }
  void backward(Kind kind, const Staging&) override { networks_->backward(kind == Kind::kAll); }

  // They are whole where they are wanted.
  void gradient_parts(int critic_base, std::vector<GradientPart>& policy,
                      std::vector<GradientPart>& critic) const override {
    const auto count = [&](Part part) { return parameter_count(setup_.model, part); };
    const std::size_t network = count(Part::kPolicy) - setup_.model.distribution.extra_parameters();
    policy.push_back({places_.policy_gradient, network, 0, static_cast<int>(network), 1, false});
    critic.push_back(
        {places_.critic_gradient, count(Part::kCritic), critic_base, static_cast<int>(count(Part::kCritic)), 1, true});
  }

  std::function<void()> record(Kind kind, const Staging& batch, const std::function<void()>& work) override {
    for (int i = 0; i < kWarmUps && !any_shape(); ++i) {
      forward(kind, batch);
      backward(kind, batch);
    }
    return networks_->record(work);
  }

  // Graphs are of few shapes: the rows, which differ from batch to batch, are rounded up.
  std::size_t shape_of(const Staging& batch) const override {
    if (any_shape()) return batch.rows();
    return std::min((batch.rows() + 31) / 32 * 32, rows_);
  }

 private:
  // Shapes differ from batch to batch: nothing is recorded.
  bool any_shape() const { return setup_.model.has_memory() || setup_.model.is_large(); }

  LearnerSetup setup_;
  NetworkPlaces places_;
  std::size_t rows_;
  CardArray<float> outputs_, average_outputs_, values_;
  std::unique_ptr<DeviceNetworks> networks_;
};

}  // namespace

std::unique_ptr<CardNetworks> make_torch_networks(const LearnerSetup& setup, const NetworkPlaces& places,
                                                  cudaStream_t stream) {
  return std::make_unique<TorchCardNetworks>(setup, places, stream);
}

}  // namespace gipo::cuda
