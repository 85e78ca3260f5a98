#pragma once

#include <string>

#include "gipo/policy/weights.h"

namespace gipo {

// The file of a policy of a run folder: that of its end ("last"), of its best evaluation ("best"), or of the checkpoint
// after so many updates ("4000"). Of a policy file, itself. Throws Error, naming the path, where there is none.
std::string policy_path(const std::string& run_or_file, const std::string& which = "last");
SavedPolicy load_policy(const std::string& run_or_file, const std::string& which = "last");

// Writes that policy as NAME.onnx, or its weights as NAME.safetensors. Throws Error for another ending, before anything
// is read, and for a folder that is not there; RunError where it cannot be written.
void export_policy(const std::string& run_or_file, const std::string& file, const std::string& which = "last");

}  // namespace gipo
