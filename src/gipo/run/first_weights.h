#pragma once

#include <memory>

#include "gipo/plan/plan.h"
#include "gipo/policy/weights.h"

namespace gipo {

// The weights that run.init_from names, checked against the networks of the plan; none where it names nothing. Throws
// Error: the tensor that differs and both shapes, or what else does not fit.
std::shared_ptr<const Weights> first_weights(const Plan& plan, const Origins& origins);

}  // namespace gipo
