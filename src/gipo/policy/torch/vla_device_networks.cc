// The large model in a learner on a card: parameters and gradients in float there, the network in bfloat16.
#include "gipo/policy/torch/vla_device_networks.h"

#include <optional>

#include "gipo/policy/torch/torch_nets.h"
#include "gipo/policy/torch/vla_nets.h"
#include "gipo/vla/torch/torch_graph.h"

namespace gipo {
namespace {

using at::Tensor;

class VlaDeviceNetworks final : public DeviceNetworks {
 public:
  VlaDeviceNetworks(const ModelSpec& spec, const PolicyRoom& room, const DeviceBuffers& buffers, void* stream)
      : spec_(spec),
        learned_(static_cast<std::int64_t>(room.learned)),
        buffers_(buffers),
        stream_(stream),
        device_(room.device),
        nets_(spec, learned_, device_) {
    const c10::InferenceMode guard;
    const OnStream on(stream_, index());
    policy_ = at::empty({nets_.count(Part::kPolicy)}, nets_.options());
    critic_ = at::empty({nets_.count(Part::kCritic)}, nets_.options());
    nets_.bind(policy_, critic_);
    if (!buffers.average) return;
    average_.emplace(spec, 0, device_);
    average_policy_ = at::empty_like(policy_);
    average_->bind(average_policy_, critic_);
  }

  void forward(const DeviceInput& input, bool policy) override {
    stay_on_this_thread();
    const OnStream on(stream_, index());
    on_device(device_, [&] {
      const c10::InferenceMode guard;
      policy_.copy_(at(buffers_.policy, {policy_.numel()}));
      critic_.copy_(at(buffers_.critic, {critic_.numel()}));
      nets_.see(vla_rows(spec_, input.raw, input.floats, static_cast<std::int64_t>(input.rows), device_));
      put(nets_.values(), buffers_.values);
      if (!policy) return;
      put(nets_.outputs(learned_), buffers_.outputs);
      if (!average_) return;
      average_policy_.copy_(at(buffers_.average, {policy_.numel()}));
      VlaRows same = nets_.seen();
      same.rows = learned_;
      average_->see(std::move(same));
      put(average_->outputs(learned_), buffers_.average_outputs);
    });
  }

  void backward(bool policy) override {
    stay_on_this_thread();
    const OnStream on(stream_, index());
    on_device(device_, [&] {
      const c10::InferenceMode guard;
      if (policy) {
        const auto outputs = static_cast<std::int64_t>(spec_.distribution.outputs());
        put(nets_.policy_gradient(at(buffers_.d_outputs, {learned_, outputs})), buffers_.policy_gradient);
      }
      put(nets_.value_gradient(at(buffers_.d_values, {learned_})), buffers_.critic_gradient);
    });
  }

  // Prompts differ in length from batch to batch: each time anew.
  std::function<void()> record(const std::function<void()>& work) override { return work; }

 private:
  int index() const { return device_.has_index() ? device_.index() : 0; }
  Tensor at(const float* place, at::IntArrayRef shape) const {
    return at::from_blob(const_cast<float*>(place), shape, at::TensorOptions(device_).dtype(at::kFloat));
  }
  void put(const Tensor& from, float* to) const { at(to, from.sizes()).copy_(from); }

  ModelSpec spec_;
  std::int64_t learned_;
  DeviceBuffers buffers_;
  void* stream_;
  at::Device device_;
  VlaNets nets_;
  Tensor policy_, critic_, average_policy_;
  std::optional<VlaNets> average_;
};

}  // namespace

std::unique_ptr<DeviceNetworks> make_vla_device_networks(const ModelSpec& spec, const PolicyRoom& room,
                                                         const DeviceBuffers& buffers, void* stream) {
  return std::make_unique<VlaDeviceNetworks>(spec, room, buffers, stream);
}

}  // namespace gipo
