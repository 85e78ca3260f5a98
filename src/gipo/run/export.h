#pragma once

#include <string>

#include "gipo/policy/weights.h"

namespace gipo {

// The policy of a run folder, or that of a policy file itself. Throws Error, naming the path, where there is none yet.
SavedPolicy load_policy(const std::string& run_or_file);

// Writes that policy as NAME.onnx, or its weights as NAME.safetensors. Throws Error for another ending, before anything
// is read, and for a folder that is not there; RunError where it cannot be written.
void export_policy(const std::string& run_or_file, const std::string& file);

}  // namespace gipo
