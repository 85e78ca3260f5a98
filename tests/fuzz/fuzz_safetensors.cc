// Safetensors files, and the weights of a policy in one.
#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/io/safetensors.h"
#include "gipo/policy/onnx_file.h"
#include "gipo/policy/policy.h"

namespace {

const gipo::ModelSpec& model() {
  static const gipo::ModelSpec spec =
      gipo::make_model_spec(gipo::PolicyOptions{.hidden = {2}}, {"T", "", 2, gipo::ActionSpace::discrete(2), 10});
  return spec;
}

template <class T>
void read_all(const gipo::SafeTensors& file) {
  for (const auto& [name, entry] : file.entries()) {
    if (entry.type == gipo::tensor_type<T>()) file.read<T>(name);
  }
}

}  // namespace

std::vector<std::string> valid_inputs() {
  const gipo::Weights weights = gipo::empty_weights(model());
  const std::vector<double> wide = {1, 2, 3, 4};
  const std::vector<std::int64_t> whole = {5};
  const std::vector<gipo::TensorView> tensors = {gipo::view_tensor<double>("wide", {2, 2}, wide),
                                                 gipo::view_tensor<std::int64_t>("whole", {}, whole),
                                                 gipo::view_tensor<float>("empty", {0, 3}, {})};
  return {gipo::weights_to_safetensors(model(), weights, "T"), gipo::write_safetensors(tensors, {{"a", "b"}})};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    const gipo::SafeTensors file(bytes, "fuzz");
    read_all<float>(file);
    read_all<double>(file);
    read_all<std::int64_t>(file);
    const gipo::Weights weights = gipo::weights_from_safetensors(model(), bytes, "fuzz");
    const std::vector<float> observation = {0.5f, -2.0f};
    const auto* column = reinterpret_cast<const std::byte*>(observation.data());
    const auto policy = gipo::make_policy<float>(model(), {1});
    policy->see(gipo::parameters_of(weights), {{&column, 1}, 1});
    policy->forward(1);
    policy->values();
  } catch (const gipo::Error&) {
  }
  try {
    gipo::policy_to_onnx(gipo::policy_from_safetensors(bytes, "fuzz"));
  } catch (const gipo::Error&) {
  }
  return 0;
}
