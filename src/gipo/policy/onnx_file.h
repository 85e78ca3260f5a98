#pragma once

#include <string>

#include "gipo/policy/model.h"

namespace gipo {

// The policy as an ONNX model (opset 17), for runtimes that know nothing of gipo. Input `observation` [N, size], raw: the
// observation scale is part of the model. Outputs: `action`, the most likely one as the task takes it (discrete: int64
// [N]; multi-discrete: int64 [N, dims]; box: float [N, dims]), and the parameters of the distribution: `logits` [N, sum of
// choices], or `mean` [N, dims] and `log_std` [dims] of the gaussian in units where a bounded range is -1 to 1.
// docs/python.md describes it for users.
std::string policy_to_onnx(const SavedPolicy& policy);

}  // namespace gipo
