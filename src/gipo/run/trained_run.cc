#include "gipo/run/trained_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/run/export.h"

namespace gipo {

TrainedRun load_trained_run(const std::string& folder, const std::string& which) {
  if (!std::filesystem::is_directory(folder)) throw Error(fmt::format("{}: no such run folder", folder));
  Plan plan = make_plan(load_config(folder + "/config.toml"));
  const std::string path = policy_path(folder, which);
  Weights weights = weights_from_safetensors(plan.model, read_file(path), path);
  return {std::move(plan), std::move(weights)};
}

}  // namespace gipo
