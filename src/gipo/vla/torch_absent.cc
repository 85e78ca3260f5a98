// In place of torch/, where the program is built without libtorch.
#include "gipo/core/error.h"
#include "gipo/core/libtorch.h"
#include "gipo/vla/vla_model.h"

namespace gipo {

std::unique_ptr<LargeModel> make_large_model(const VlaSetup&) { throw Error(kAddTorch); }

}  // namespace gipo
