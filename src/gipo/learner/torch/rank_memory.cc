// The parameters of a rank on its CUDA device.
#include "gipo/learner/rank_memory.h"

#include <torch/torch.h>

#include <deque>

#include "gipo/policy/torch/torch_nets.h"

namespace gipo {
namespace {

using torch::Tensor;

class DeviceMemory final : public RankMemory {
 public:
  DeviceMemory(const std::string& device, bool tf32) : options_(torch::TensorOptions(torch::Device(device))) {
    at::globalContext().setFloat32MatmulPrecision(tf32 ? "high" : "highest");
    at::globalContext().setAllowTF32CuDNN(tf32);
    at::globalContext().setDeterministicCuDNN(true);
  }

  std::span<float> make(std::size_t size) override {
    if (size == 0) return {};
    const Tensor& made = arrays_.emplace_back(torch::zeros({static_cast<std::int64_t>(size)}, options_));
    return {made.data_ptr<float>(), size};
  }
  void read(std::span<const float> there, std::span<float> here) override {
    if (!there.empty()) host(here).copy_(on_device(there));
  }
  void write(std::span<const float> here, std::span<float> there) override {
    if (!there.empty()) on_device(there).copy_(host(here));
  }
  void clear(std::span<float> there) override {
    if (!there.empty()) on_device(there).zero_();
  }
  double sum_of_squares(std::span<const float> there) override {
    return there.empty() ? 0 : on_device(there).to(torch::kFloat64).square().sum().item<double>();
  }
  void adamw(const AdamWStep<float>& step, std::span<const float> gradient, std::span<float> parameters,
             std::span<float> first, std::span<float> second) override {
    if (gradient.empty()) return;
    const torch::NoGradGuard none;
    const Tensor g = on_device(gradient) * step.scale;
    Tensor p = on_device(parameters), m = on_device(first), v = on_device(second);
    m.mul_(step.beta1).add_(g, 1.0F - step.beta1);
    v.mul_(step.beta2).addcmul_(g, g, 1.0F - step.beta2);
    p.mul_(step.keep).addcdiv_(m, (v * step.second_scale).sqrt_().add_(step.epsilon), -step.rate);
  }
  void move_average(std::span<float> average, std::span<const float> parameters, float towards) override {
    if (!average.empty()) on_device(average).mul_(1.0F - towards).add_(on_device(parameters), towards);
  }

 private:
  static Tensor host(std::span<const float> values) { return floats_at(values, torch::kCPU); }
  Tensor on_device(std::span<const float> values) const { return floats_at(values, options_.device()); }

  torch::TensorOptions options_;
  std::deque<Tensor> arrays_;
};

}  // namespace

std::unique_ptr<RankMemory> make_device_memory(const std::string& device, bool tf32) {
  return std::make_unique<DeviceMemory>(device, tf32);
}

}  // namespace gipo
