#pragma once

#include <string>

#include "gipo/policy/weights.h"

namespace gipo {

// The policy as an ONNX model (opset 17), for runtimes that know nothing of gipo. Input `observation` [N, size], raw: the
// observation scale is part of the model. Outputs: `action`, the most likely one as the task takes it (discrete: int64
// [N]; multi-discrete: int64 [N, dims]; box and composed: float [N, dims], choices as whole numbers), and the parameters of
// the distribution: `logits` [N, sum of choices] of the categorical dimensions, `mean` [N, gaussians] and `log_std`
// [gaussians] of the others, in units where a bounded range is -1 to 1. A masked policy has the input `action_mask` too,
// bool [N, sum of choices]: no choice that is false there is the action; `logits` stay as they are.
// docs/python.md describes it for users.
std::string policy_to_onnx(const SavedPolicy& policy);

}  // namespace gipo
