#include "gipo/run/trained_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/run/run_folder.h"

namespace gipo {

TrainedRun load_trained_run(const std::string& folder) {
  if (!std::filesystem::is_directory(folder)) throw Error(fmt::format("{}: no such run folder", folder));
  Plan plan = make_plan(load_config(folder + "/config.toml"));
  const std::string path = folder + "/" + kPolicyFile;
  if (!std::filesystem::exists(path)) {
    throw Error(fmt::format("{}: no policy there yet; a run saves it when it ends", path));
  }
  Weights weights = weights_from_safetensors(plan.model, read_file(path), path);
  return {std::move(plan), std::move(weights)};
}

}  // namespace gipo
