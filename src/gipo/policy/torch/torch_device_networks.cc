#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "gipo/policy/device_networks.h"
#include "gipo/policy/torch/torch_nets.h"
#include "gipo/policy/torch/vla_device_networks.h"
#include "gipo/vla/torch/torch_graph.h"

namespace gipo {
namespace {

using torch::Tensor;

class TorchDeviceNetworks final : public DeviceNetworks {
 public:
  TorchDeviceNetworks(const ModelSpec& spec, const PolicyRoom& room, const DeviceBuffers& buffers, void* stream)
      : spec_(spec),
        room_(room),
        buffers_(buffers),
        stream_(stream),
        device_(room.device),
        nets_(spec, true, room.bf16, device_) {
    nets_.network(Part::kPolicy).bind(buffers.policy, true, device_);
    nets_.network(Part::kCritic).bind(buffers.critic, true, device_);
    if (buffers.average) {
      average_.emplace(spec, false, room.bf16, device_);
      average_->network(Part::kPolicy).bind(buffers.average, false, device_);
    }
    if (device_.is_cpu()) return;
    set_up_device(room.tf32);
    if (!spec.has_memory()) graphs_.emplace(stream, index());  // with it, shapes change from batch to batch
  }

  void forward(const DeviceInput& input, bool policy) override {
    stay_on_this_thread();
    const OnStream on(stream_, index());
    on_device(device_, [&] { run_forward(input, policy); });
  }

  void backward(bool policy) override {
    stay_on_this_thread();
    const OnStream on(stream_, index());
    on_device(device_, [&] { run_backward(policy); });
  }

  std::function<void()> record(const std::function<void()>& work) override {
    return graphs_ ? graphs_->record(work) : work;
  }

 private:
  void run_forward(const DeviceInput& input, bool policy) {
    nets_.see(seen(input));
    if (policy) {
      outputs_ = nets_.outputs(room_.learned);
      put(outputs_, buffers_.outputs);
    }
    if (policy && average_) {
      TorchRows same = nets_.seen();
      same.rows = std::min(same.rows, room_.learned);
      average_->see(std::move(same));
      put(average_->outputs(room_.learned), buffers_.average_outputs);
    }
    values_ = nets_.values();
    put(values_, buffers_.values);
  }

  void run_backward(bool policy) {
    if (policy) gradient(Part::kPolicy, outputs_, buffers_.d_outputs, buffers_.policy_gradient);
    gradient(Part::kCritic, first_rows(values_, room_.learned), buffers_.d_values, buffers_.critic_gradient);
    outputs_ = values_ = Tensor();  // and what was kept for the gradients
  }

  int index() const { return device_.has_index() ? device_.index() : 0; }

  Tensor at(const float* place, std::vector<std::int64_t> shape) const {
    return torch::from_blob(const_cast<float*>(place), shape, torch::TensorOptions().device(device_));
  }

  TorchRows seen(const DeviceInput& input) const {
    const torch::NoGradGuard none;
    TorchRows seen;
    seen.rows = input.rows;
    seen.sequences.assign(input.sequences.begin(), input.sequences.end());
    std::size_t all = seen.rows;
    for (const Sequence& s : seen.sequences) all = std::max(all, s.context_begin + s.context);
    const auto rows = static_cast<std::int64_t>(all);
    if (spec_.has_memory()) {
      seen.state = at(input.state, {static_cast<std::int64_t>(seen.sequences.size()),
                                    static_cast<std::int64_t>(spec_.state_size())});
    }
    if (spec_.observation_size > 0) {
      seen.floats = at(input.floats, {rows, static_cast<std::int64_t>(spec_.observation_size)});
    }
    seen.raw.resize(spec_.fields.size());
    for (std::size_t f = 0; f < spec_.fields.size(); ++f) {
      if (!spec_.fields[f].raw) continue;
      seen.raw[f] = as_input(spec_.fields[f], spec_.encoders[f], rows_of(spec_.fields[f], input.raw[f], rows, device_));
    }
    return seen;
  }

  void put(const Tensor& from, float* to) const {
    const torch::NoGradGuard none;
    at(to, from.sizes().vec()).copy_(from.detach());
  }

  void gradient(Part part, const Tensor& output, const float* d_output, float* to) const {
    const TorchNetwork& network = nets_.network(part);
    const std::vector<Tensor> leaves(network.tensors().begin(), network.tensors().end());
    std::vector<Tensor> flat;
    for (const Tensor& g : torch::autograd::grad({output}, leaves, {at(d_output, output.sizes().vec())})) {
      flat.push_back(g.flatten());
    }
    Tensor out = at(to, {static_cast<std::int64_t>(network.layout().parameter_count())});
    at::cat_out(out, flat);
  }

  ModelSpec spec_;
  PolicyRoom room_;
  DeviceBuffers buffers_;
  void* stream_;
  torch::Device device_;
  TorchNets nets_;
  std::optional<TorchNets> average_;
  std::optional<TorchGraphs> graphs_;
  Tensor outputs_, values_;
};

}  // namespace

std::unique_ptr<DeviceNetworks> make_device_networks(const ModelSpec& spec, const PolicyRoom& room,
                                                     const DeviceBuffers& buffers, void* stream) {
  if (spec.is_large()) return make_vla_device_networks(spec, room, buffers, stream);
  return std::make_unique<TorchDeviceNetworks>(spec, room, buffers, stream);
}

}  // namespace gipo
