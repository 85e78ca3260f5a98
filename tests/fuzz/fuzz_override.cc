// --set: every line of the input is one assignment.
#include <sstream>
#include <string>
#include <vector>

#include "gipo/core/error.h"
#include "gipo/plan/config_file.h"
#include "gipo/plan/option_table.h"

std::vector<std::string> valid_inputs() {
  const gipo::Config defaults;
  std::vector<std::string> inputs;
  for (const gipo::OptionGroup<gipo::Config>& group : gipo::option_table()) {
    inputs.emplace_back();
    for (const gipo::Option<gipo::Config>& o : group.options) inputs.back() += o.key + "=" + o.get(defaults) + "\n";
  }
  inputs.push_back("env.options.weight=0.5\nenv.options.range=[1, inf]\nenv.options.file=a.xml\nenv.options.on=true\n");
  return inputs;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gipo::LoadedConfig loaded;
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data), size));
  for (std::string line; std::getline(lines, line);) {
    try {
      gipo::apply_override(loaded, line);
    } catch (const gipo::Error&) {
    }
  }
  // What was set can be written and set again.
  for (const gipo::OptionGroup<gipo::Config>& group : gipo::option_table()) {
    for (const gipo::Option<gipo::Config>& o : group.options) {
      if (!loaded.origins.contains(o.key)) continue;
      gipo::LoadedConfig again;
      gipo::apply_override(again, o.key + "=" + o.get(loaded.config));
      GIPO_CHECK(o.get(again.config) == o.get(loaded.config));
    }
  }
  for (const auto& [name, value] : loaded.config.env_options) {
    gipo::LoadedConfig again;
    gipo::apply_override(again, std::string(gipo::kEnvOptions) + name + "=" + gipo::to_toml(value));
    GIPO_CHECK(gipo::to_toml(again.config.env_options.at(name)) == gipo::to_toml(value));
  }
  return 0;
}
