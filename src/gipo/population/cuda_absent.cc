// In place of cuda/, where the program is built without CUDA. Weak: tests/card_twin has cuda/ itself.
#include "gipo/core/error.h"
#include "gipo/learner/cuda_learner.h"
#include "gipo/population/engine.h"

namespace gipo::population {

[[gnu::weak]] std::unique_ptr<Engine> make_cuda_engine() { throw Error(std::string("--device cuda: ") + kAddCuda); }

}  // namespace gipo::population
