#pragma once

#include <string>

#include "gipo/plan/plan.h"
#include "gipo/policy/weights.h"

namespace gipo {

// A run folder's task and the weights of its policy: what plays it again.
struct TrainedRun {
  Plan plan;
  Weights weights;
};
// `which` as in policy_path (run/export.h). Throws Error where the folder is none, or holds no such policy.
TrainedRun load_trained_run(const std::string& folder, const std::string& which = "last");

}  // namespace gipo
