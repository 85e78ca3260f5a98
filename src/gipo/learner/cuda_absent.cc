// In place of cuda/, where the program is built without CUDA.
#include "gipo/core/error.h"
#include "gipo/learner/cuda_learner.h"

namespace gipo {

std::unique_ptr<Learner> make_cuda_learner(const LearnerSetup&, RandomStream) { throw Error(kAddCuda); }
void check_card(const LearnerSetup&) { throw Error(kAddCuda); }
double card_update(const LearnerSetup&, const Batch&) { throw Error(kAddCuda); }
SurrogateSeconds card_surrogate(const SurrogateOptions&, std::size_t) { throw Error(kAddCuda); }
double card_inference(const ModelSpec&, const Weights&, std::span<const float>, ProductKind, std::span<float>) {
  throw Error(kAddCuda);
}
std::string card_name() { throw Error(kAddCuda); }
std::string cuda_version() { return {}; }

}  // namespace gipo
