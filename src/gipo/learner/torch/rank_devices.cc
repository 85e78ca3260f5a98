#include "gipo/learner/torch/rank_devices.h"

#include <c10/cuda/CUDAFunctions.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace gipo {

void stay_on_device(const std::string& device) { c10::cuda::set_device(c10::Device(device).index()); }

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                            const std::string& device, std::chrono::milliseconds silence) {
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = silence;
  auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>("nccl", store), rank,
                                                           ranks, options);
  group->eagerConnectSingleDevice(c10::Device(device));
  return group;
}

}  // namespace gipo
