#pragma once

#include <memory>
#include <span>
#include <string>

#include "gipo/core/random.h"
#include "gipo/learner/learner.h"

namespace gipo {

// The learner on one NVIDIA card, for policies of MLPs: an update is one CUDA graph, and the same batches give the same
// bytes on the same card. Its parameters and state are those of the CPU's.
std::unique_ptr<Learner> make_cuda_learner(const LearnerSetup& setup, RandomStream random);

// Throws Error where there is no card, its driver is too old, its memory is too small for this learner, or this learner
// is one that it cannot run.
void check_card(const LearnerSetup& setup);

// For benchmarks: seconds of the card by its own clock, the median of many.
// One update, its batch being there.
double card_update(const LearnerSetup& setup, const Batch& batch);
// A surrogate over so many samples, beside a copy of as many floats.
struct SurrogateSeconds {
  double surrogate = 0, copy = 0;
};
SurrogateSeconds card_surrogate(const SurrogateOptions& options, std::size_t samples);
// Outputs of a small policy [rows, outputs] for observations [rows, inputs], both being on the card while it is measured.
double card_inference(const ModelSpec& model, const Weights& weights, std::span<const float> observations,
                      ProductKind kind, std::span<float> outputs);
std::string card_name();

// The CUDA version that this program was built with; empty where it was built without.
std::string cuda_version();
inline constexpr const char* kAddCuda =
    "this program was built without CUDA: a build with -DGIPO_CUDA=ON has it, which needs CUDA's compiler nvcc 12.8 or "
    "newer";

}  // namespace gipo
