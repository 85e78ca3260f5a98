#include <fmt/format.h>

#include "gipo/cli/commands.h"
#include "gipo/cli/python.h"
#include "gipo/core/error.h"
#include "gipo/plan/automatic.h"
#include "gipo/plan/zoo.h"

namespace gipo::cli {

// Ray is the Python package's; it starts this program again on the nodes.
int cluster_up(const ClusterUpArguments& a) {
  if (a.config.empty() && a.zoo.empty() && a.env.empty()) {
    throw Error("cluster up: wanted a config, --zoo or --env; gipo list presets shows the ready-made configs");
  }
  std::vector<std::string> words = {"--config", !a.zoo.empty()      ? zoo_preset(a.zoo)
                                                : !a.config.empty() ? a.config
                                                                    : kAutomatic};
  const auto set = [&words](const std::string& assignment) { words.insert(words.end(), {"--set", assignment}); };
  if (!a.env.empty()) set("env.id=" + a.env);
  for (const std::string& assignment : a.overrides) set(assignment);
  if (a.seed) set(fmt::format("run.seed={}", *a.seed));
  if (a.env_steps) set(fmt::format("learner.env_steps={}", *a.env_steps));
  if (!a.name.empty()) set("run.name=" + a.name);
  const auto give = [&words](const char* flag, const auto& value) {
    if (value) words.insert(words.end(), {flag, fmt::format("{}", *value)});
  };
  give("--actors", a.actors);
  give("--cpus-per-actor", a.cpus_per_actor);
  give("--learner-cpus", a.learner_cpus);
  give("--learner-gpus", a.learner_gpus);
  if (a.overwrite) words.emplace_back("--overwrite");
  if (a.resume) words.emplace_back("--resume");
  if (a.quiet) words.emplace_back("--quiet");
  if (a.json) words.emplace_back("--json");
  become_python("gipo.ray", words);
}

}  // namespace gipo::cli
