#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gipo/core/libtorch.h"
#include "gipo/policy/policy.h"

namespace gipo {

// Policies whose networks libtorch runs, on the CPU or on a CUDA device: any that encoders and hidden layers make. Of vectors alone they have
// the parameters of MlpPolicy, under the same names. Each call uses one thread.
std::unique_ptr<Policy<float>> make_torch_policy(const ModelSpec& spec, const PolicyRoom& room);
PolicyMemory torch_policy_memory(const ModelSpec& spec, const PolicyRoom& room);

// CUDA devices that libtorch has here, by name; none where it was built without CUDA.
std::vector<std::string> torch_cuda_devices();
// Throws Error, saying what there is, where that is no device for make_torch_policy, or libtorch is another than it was built with.
void check_torch_device(const std::string& device);
// The version of libtorch in this program; empty where it was built without.
std::string torch_version();

}  // namespace gipo
