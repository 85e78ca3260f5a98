#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "gipo/config/did_you_mean.h"
#include "gipo/core/error.h"
#include "gipo/env/bridge/bridged_env.h"
#include "gipo/env/env.h"
#include "gipo/env/spaces.h"

namespace gipo {
namespace {

struct Registered {
  EnvSpec spec;
  std::function<std::unique_ptr<Env>(const OptionValues&)> make;
};

// Made by whichever task registers first, so that no order of the files' initialisation matters.
std::map<std::string, Registered>& registry() {
  static std::map<std::string, Registered> tasks;
  return tasks;
}

const Registered& find(const std::string& id) {
  const auto it = registry().find(id);
  if (it != registry().end()) return it->second;

  std::vector<std::string> known;
  for (const auto& [name, task] : registry()) known.push_back(name);
  throw Error(
      fmt::format("environment {} is not known{}; known: {}; or gymnasium:ID, python:MODULE:FACTORY, envpool:ID, "
                  "libero:SUITE/N, metaworld-pixels:TASK, robosuite:TASK",
                  id, did_you_mean(id, known), fmt::join(known, ", ")));
}

}  // namespace

RegisterEnv::RegisterEnv(EnvSpec spec, std::function<std::unique_ptr<Env>()> make)
    : RegisterEnv(std::move(spec), [make = std::move(make)](const OptionValues&) { return make(); }) {}

RegisterEnv::RegisterEnv(EnvSpec spec, std::function<std::unique_ptr<Env>(const OptionValues&)> make) {
  const std::string id = spec.id;
  const bool added = registry().emplace(id, Registered{std::move(spec), std::move(make)}).second;
  if (!added) throw InvariantError("environment " + id + " is registered twice");
}

std::vector<EnvSpec> registered_envs() {
  std::vector<EnvSpec> specs;
  for (const auto& [id, task] : registry()) specs.push_back(task.spec);
  return specs;
}

const EnvSpec& find_env(const std::string& id) { return find(id).spec; }

std::unique_ptr<Env> make_env(const std::string& id, std::optional<std::int64_t> time_limit,
                              const OptionValues& options) {
  const Registered& task = find(id);
  if (time_limit && *time_limit < 0) {
    throw Error(
        fmt::format("environment {}: a time limit of {} is not accepted: wanted 0 (never) or more", id, *time_limit));
  }
  std::unique_ptr<Env> env = task.make(resolve_options(id, task.spec.options, options));
  GIPO_CHECK(env != nullptr && env->spec().id == id);
  if (time_limit) env->spec_.time_limit = *time_limit;
  env->spec_.fields = plain_fields(env->spec_.observation_size);
  return env;
}

OptionValues task_options(const std::string& id, const OptionValues& given) {
  return is_bridged(id) ? given : resolve_options(id, find_env(id).options, given);
}

EnvSpec ask_spec(const EnvOptions& env, const OptionValues& options) {
  if (is_bridged(env.id)) return bridged_spec(env, options);
  const std::unique_ptr<Env> one = make_env(env.id, env.time_limit, options);
  EnvSpec spec = one->spec();
  constexpr double kObject = 4096;  // with the tables of its description
  spec.memory.each = kObject + one->memory_bytes();
  spec.spaces = native_spaces(spec);
  if (env.mask != "auto" && env.mask != "none") {
    throw Error(fmt::format("env.mask = {}: {} has no mask; wanted auto or none", env.mask, spec.id));
  }
  assign_roles(env, spec);
  return spec;
}

std::vector<std::unique_ptr<Env>> make_envs(const EnvSpec& spec, const EnvOptions& env, const OptionValues& options,
                                            const EnvCrowd& crowd) {
  if (is_bridged(env.id)) {
    return make_bridged_envs(std::make_shared<Bridge>(spec, env, options, crowd), crowd.count);
  }
  std::vector<std::unique_ptr<Env>> envs;
  for (std::size_t i = 0; i < crowd.count; ++i) envs.push_back(make_env(env.id, env.time_limit, options));
  return envs;
}

}  // namespace gipo
