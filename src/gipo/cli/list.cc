#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gipo/cli/commands.h"
#include "gipo/core/error.h"
#include "gipo/env/env.h"
#include "gipo/objective/surrogate.h"
#include "gipo/plan/option_table.h"
#include "gipo/plan/presets.h"

namespace gipo::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string in_words(const ActionSpace& a) {
  if (a.kind == ActionSpace::Kind::kBox) {
    return fmt::format("{} continuous in [{:g}, {:g}]", a.dims(), a.low.front(), a.high.front());
  }
  return fmt::format("choices {}", fmt::join(a.choices, " x "));
}

void list_envs(bool json) {
  Json rows = Json::array();
  for (const EnvSpec& e : registered_envs()) {
    Json options = Json::array();
    for (const EnvOption& o : e.options) {
      options.push_back({{"name", o.name},
                         {"type", o.type()},
                         {"default", to_toml(o.value)},
                         {"accepted", o.accepted()},
                         {"help", o.help}});
    }
    rows.push_back({{"id", e.id},
                    {"observation_size", e.observation_size},
                    {"action", in_words(e.action)},
                    {"time_limit", e.time_limit},
                    {"summary", e.summary},
                    {"options", options}});
    if (json) continue;
    fmt::print("{:<26} observation {:<3} action {:<28} limit {:<5} {}\n", e.id, e.observation_size, in_words(e.action),
               e.time_limit, e.summary);
    for (const EnvOption& o : e.options) {
      fmt::print("    env.options.{:<43} {:<28} {}\n", o.name, to_toml(o.value), o.help);
    }
  }
  if (json) return fmt::print("{}\n", rows.dump(2));
  fmt::print("Of Python packages: gymnasium:ID, python:MODULE:FACTORY, envpool:ID (docs/bridge.md)\n");
}

// The page docs/tasks.md.
void print_envs_page() {
  fmt::print(
      "# Tasks\n\n"
      "Every task with its options, made by `gipo list envs --markdown`. An option stands in the table `[env.options]` "
      "of a\n"
      "run file, or on the command line as `--set env.options.NAME=VALUE`. [Environments](environments.md) says what "
      "the\n"
      "tasks are and how they are tested; [those of Python packages](bridge.md) come beside these.\n");
  for (const EnvSpec& e : registered_envs()) {
    fmt::print("\n## {}\n\nAim: {}. Observation: {} numbers. Action: {}. Limit: {} steps.\n", e.id, e.summary,
               e.observation_size, in_words(e.action), e.time_limit);
    if (e.options.empty()) continue;
    fmt::print("\n| option | type | default | meaning |\n|---|---|---|---|\n");
    for (const EnvOption& o : e.options) {
      fmt::print("| `{}` | {}{}{} | `{}` | {} |\n", o.name, o.type(), o.accepted().empty() ? "" : ", ", o.accepted(),
                 to_toml(o.value), o.help);
    }
  }
}

void list_surrogates(bool json) {
  Json rows = Json::array();
  for (const SurrogateInfo& s : registered_surrogates()) {
    rows.push_back({{"name", s.name}, {"options", s.options}, {"summary", s.summary}});
    if (!json) fmt::print("{:<10} {}\n{:<10} options: {}\n", s.name, s.summary, "", fmt::join(s.options, ", "));
  }
  if (json) fmt::print("{}\n", rows.dump(2));
}

void list_options(bool json) {
  Json rows = Json::array();
  for (const OptionGroup<Config>& g : option_table()) {
    if (!json) fmt::print("\n[{}] {}\n", g.name, g.help);
    for (const Option<Config>& o : g.options) {
      rows.push_back(
          {{"key", o.key}, {"type", o.type}, {"default", o.value}, {"accepted", o.accepted}, {"help", o.help}});
      if (json) continue;
      fmt::print("  {:<32} {}\n  {:<32} {}{}; default {}\n", o.key, o.help, "", o.type,
                 o.accepted.empty() ? "" : ", " + o.accepted, o.value);
    }
  }
  if (json) fmt::print("{}\n", rows.dump(2));
}

void list_presets(bool json) {
  Json rows = Json::array();
  for (const PresetConfig& preset : preset_configs()) {
    rows.push_back({{"name", preset.name}, {"about", preset.about()}, {"config", preset.text}});
    if (!json) fmt::print("{:<28} {}\n", preset.name, preset.about());
  }
  if (json) fmt::print("{}\n", rows.dump(2));
}

}  // namespace

int list(const ListArguments& a) {
  if (a.markdown && a.what != "options" && a.what != "envs")
    throw Error("--markdown goes with `gipo list options` or `gipo list envs`");
  if (a.what == "envs" && a.markdown) print_envs_page();
  if (a.what == "envs" && !a.markdown) list_envs(a.json);
  if (a.what == "presets") list_presets(a.json);
  if (a.what == "surrogates") list_surrogates(a.json);
  if (a.what == "options" && a.markdown) fmt::print("{}", options_page());
  if (a.what == "options" && !a.markdown) list_options(a.json);
  return kDone;
}

}  // namespace gipo::cli
