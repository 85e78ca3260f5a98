// In place of rank_devices.cc, where the program is built without CUDA: no rank has a device.
#include "gipo/core/error.h"
#include "gipo/learner/torch/rank_devices.h"

namespace gipo {

void stay_on_device(const std::string&) { GIPO_NOT_REACHED(); }
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>&, int, int, const std::string&,
                                            std::chrono::milliseconds) {
  GIPO_NOT_REACHED();
}

}  // namespace gipo
