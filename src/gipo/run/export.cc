#include "gipo/run/export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "gipo/config/path_text.h"
#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/policy/onnx_file.h"
#include "gipo/run/checkpoint.h"
#include "gipo/run/run_folder.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;

std::string checkpoint_names(const std::string& run) {
  const std::vector<std::int64_t> kept = list_checkpoints(run + "/" + kCheckpointFolder);
  return kept.empty() ? "there is none" : fmt::format("there are {}", fmt::join(kept, ", "));
}

// Of a run that has one.
std::string last_policy(const std::string& run) {
  std::string path = (fs::path(run) / kPolicyFile).string();
  if (fs::exists(path)) return path;
  throw Error(fmt::format("{}: no policy there yet; a run saves it when it ends. Of its checkpoints, {}", path,
                          checkpoint_names(run)));
}

std::string best_policy(const std::string& run) {
  std::string path = (fs::path(run) / kBestFile).string();
  if (fs::exists(path)) return path;
  throw Error(
      fmt::format("{}: not there: it is kept of runs that are evaluated on their way, where eval.every_updates "
                  "is above 0",
                  path));
}

std::string checkpoint_policy(const std::string& run, const std::string& update) {
  const bool number = !update.empty() && update.size() <= 12 && update.find_first_not_of("0123456789") == update.npos;
  if (number) {
    std::string path = fmt::format("{}/{}/{:06}/{}", run, kCheckpointFolder, std::stoll(update), kWeightsFile);
    if (fs::exists(path)) return path;
  }
  throw Error(
      fmt::format("{}: policy {} is not accepted: wanted last, best, or the number of a checkpoint, of which {}", run,
                  shown_text(update), checkpoint_names(run)));
}

}  // namespace

std::string policy_path(const std::string& run_or_file, const std::string& which) {
  if (fs::is_regular_file(run_or_file)) {
    if (which == "last") return run_or_file;
    throw Error(fmt::format("{}: policy {} is not accepted: this is one policy; a run folder has several", run_or_file,
                            shown_text(which)));
  }
  if (!fs::is_directory(run_or_file)) throw Error(fmt::format("{}: no such run folder or policy file", run_or_file));
  if (!fs::exists(fs::path(run_or_file) / "config.toml") && !fs::exists(fs::path(run_or_file) / kPolicyFile)) {
    throw Error(fmt::format("{}: no run folder: it has neither config.toml nor {}", run_or_file, kPolicyFile));
  }
  if (which == "last") return last_policy(run_or_file);
  return which == "best" ? best_policy(run_or_file) : checkpoint_policy(run_or_file, which);
}

SavedPolicy load_policy(const std::string& run_or_file, const std::string& which) {
  const std::string path = policy_path(run_or_file, which);
  return policy_from_safetensors(read_file(path), path);
}

void export_policy(const std::string& run_or_file, const std::string& file, const std::string& which) {
  const fs::path target(file);
  const bool onnx = target.extension() == ".onnx";
  if (!onnx && target.extension() != ".safetensors") {
    throw Error(fmt::format("{}: wanted a name that ends in .onnx or .safetensors", file));
  }
  if (target.has_parent_path() && !fs::is_directory(target.parent_path())) {
    throw Error(fmt::format("{}: there is no folder {}", file, target.parent_path().string()));
  }
  // Read as a policy in both cases: a damaged file is not passed on.
  const SavedPolicy policy = load_policy(run_or_file, which);
  write_file_atomic(
      file, onnx ? policy_to_onnx(policy) : weights_to_safetensors(policy.model, policy.weights, policy.env_id));
}

}  // namespace gipo
