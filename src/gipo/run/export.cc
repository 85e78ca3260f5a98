#include "gipo/run/export.h"

#include <fmt/format.h>

#include <filesystem>

#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/policy/onnx_file.h"
#include "gipo/run/run_folder.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;

std::string policy_path(const std::string& run_or_file) {
  if (fs::is_regular_file(run_or_file)) return run_or_file;
  if (!fs::is_directory(run_or_file)) throw Error(fmt::format("{}: no such run folder or policy file", run_or_file));
  std::string path = (fs::path(run_or_file) / kPolicyFile).string();
  if (fs::exists(path)) return path;
  if (!fs::exists(fs::path(run_or_file) / "config.toml")) {
    throw Error(fmt::format("{}: no run folder: it has neither config.toml nor {}", run_or_file, kPolicyFile));
  }
  throw Error(fmt::format("{}: no policy there yet; a run saves it when it ends", path));
}

}  // namespace

SavedPolicy load_policy(const std::string& run_or_file) {
  const std::string path = policy_path(run_or_file);
  return policy_from_safetensors(read_file(path), path);
}

void export_policy(const std::string& run_or_file, const std::string& file) {
  const fs::path target(file);
  const bool onnx = target.extension() == ".onnx";
  if (!onnx && target.extension() != ".safetensors") {
    throw Error(fmt::format("{}: wanted a name that ends in .onnx or .safetensors", file));
  }
  if (target.has_parent_path() && !fs::is_directory(target.parent_path())) {
    throw Error(fmt::format("{}: there is no folder {}", file, target.parent_path().string()));
  }
  // Read as a policy in both cases: a damaged file is not passed on.
  const SavedPolicy policy = load_policy(run_or_file);
  write_file_atomic(
      file, onnx ? policy_to_onnx(policy) : weights_to_safetensors(policy.model, policy.weights, policy.env_id));
}

}  // namespace gipo
