#include "gipo/plan/option_table.h"

#include <fmt/format.h>

namespace gipo {
namespace {

template <class Of>
OptionGroup<Config> group_in(Of Config::*member) {
  return inside(group_of<Of>(), member);
}

}  // namespace

const std::vector<OptionGroup<Config>>& option_table() {
  static const std::vector<OptionGroup<Config>> table = {
      group_in(&Config::run),        group_in(&Config::env),       group_in(&Config::policy),
      group_in(&Config::surrogate),  group_in(&Config::advantage), group_in(&Config::replay),
      group_in(&Config::staleness),  group_in(&Config::learner),   group_in(&Config::eval),
      group_in(&Config::checkpoint), group_in(&Config::log),       group_in(&Config::clone)};
  return table;
}

std::string config_to_toml(const Config& config) {
  std::string text;
  for (const OptionGroup<Config>& group : option_table()) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", group.name);
    for (const Option<Config>& o : group.options) {
      const std::string name = o.key.substr(group.name.size() + 1);
      const std::string value = o.get(config);
      text += value.empty() ? fmt::format("# {} is unset. {}\n", name, o.help)
                            : fmt::format("{} = {}  # {}\n", name, value, o.help);
    }
    if (group.name != "env" || config.env_options.empty()) continue;
    text += "\n[env.options]\n";
    for (const auto& [name, value] : config.env_options)
      text += fmt::format("{} = {}\n", toml_key(name), to_toml(value));
  }
  return text;
}

std::string options_page() {
  std::string page =
      "# Options\n\n"
      "Every option of a run. `gipo list options --markdown` makes this page from `src/gipo/*/options.def`. In a TOML\n"
      "file, write an option under its group; on the command line, use `--set group.name=value`. An option that is\n"
      "*unset* by default may be left out; its line says what happens then.\n";
  for (const OptionGroup<Config>& group : option_table()) {
    page += fmt::format("\n## {}\n\n{}\n\n| option | type | default | accepted | meaning |\n|---|---|---|---|---|\n",
                        group.name, group.help);
    for (const Option<Config>& o : group.options) {
      page += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", o.key, o.type, o.value,
                          o.accepted.empty() ? "any" : o.accepted, o.help);
    }
  }
  return page;
}

}  // namespace gipo
