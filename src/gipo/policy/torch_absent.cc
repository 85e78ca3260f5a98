// In place of torch/, where the program is built without libtorch.
#include "gipo/core/error.h"
#include "gipo/policy/device_networks.h"
#include "gipo/policy/torch_policy.h"

namespace gipo {

std::unique_ptr<Policy<float>> make_torch_policy(const ModelSpec&, const PolicyRoom&) { throw Error(kAddTorch); }
PolicyMemory torch_policy_memory(const ModelSpec&, const PolicyRoom&) { throw Error(kAddTorch); }
std::unique_ptr<DeviceNetworks> make_device_networks(const ModelSpec&, const PolicyRoom&, const DeviceBuffers&, void*) {
  throw Error(kAddTorch);
}
std::vector<std::string> torch_cuda_devices() { return {}; }
void check_torch_device(const std::string&) { throw Error(kAddTorch); }
std::string torch_version() { return {}; }

}  // namespace gipo
