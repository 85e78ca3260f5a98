// In place of cuda/, where the program is built without CUDA.
#include "gipo/core/error.h"
#include "gipo/learner/cuda_learner.h"
#include "gipo/population/engine.h"

namespace gipo::population {

std::unique_ptr<Engine> make_cuda_engine() { throw Error(std::string("--device cuda: ") + kAddCuda); }

}  // namespace gipo::population
