// In place of cuda/, where the program is built without CUDA. Weak: tests/card_twin has cuda/ itself.
#include "gipo/core/error.h"
#include "gipo/learner/cuda_learner.h"

namespace gipo {

[[gnu::weak]] std::unique_ptr<Learner> make_cuda_learner(const LearnerSetup&, RandomStream) { throw Error(kAddCuda); }
[[gnu::weak]] void check_card(const LearnerSetup&) { throw Error(kAddCuda); }
[[gnu::weak]] double card_update(const LearnerSetup&, const Batch&) { throw Error(kAddCuda); }
[[gnu::weak]] SurrogateSeconds card_surrogate(const SurrogateOptions&, std::size_t) { throw Error(kAddCuda); }
[[gnu::weak]] double card_inference(const ModelSpec&, const Weights&, std::span<const float>, ProductKind,
                                    std::span<float>) {
  throw Error(kAddCuda);
}
[[gnu::weak]] std::string card_name() { throw Error(kAddCuda); }
[[gnu::weak]] std::string cuda_version() { return {}; }

}  // namespace gipo
