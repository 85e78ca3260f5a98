#pragma once

#include "gipo/data/batch.h"
#include "gipo/learner/learner.h"

namespace gipo {

// A learner and a batch of stale data of any shape, for benchmarks; the numbers are random and mean nothing.
LearnerSetup made_up_setup(std::size_t observation_size, const ActionSpace& action, const PolicyOptions& policy,
                           std::size_t batch_size);
LearnerSetup made_up_setup(std::size_t observation_size, const ActionSpace& action, const Widths& hidden,
                           std::size_t batch_size);
// Policy and critic with a Nature CNN each, from four frames of 84 x 84 to six actions, run by libtorch.
LearnerSetup made_up_images(std::size_t batch_size);
Batch made_up_batch(std::size_t size, const ModelSpec& model);
// Multiplications and additions in the products of one update, the policy's part taken times `policy_share`.
double update_operations(const ModelSpec& model, std::size_t rows, double policy_share = 1);

}  // namespace gipo
