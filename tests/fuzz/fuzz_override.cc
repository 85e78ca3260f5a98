// --set: every line of the input is one assignment.
#include <sstream>
#include <string>
#include <vector>

#include "gipo/core/error.h"
#include "gipo/core/options.h"

std::vector<std::string> valid_inputs() {
  const gipo::Config defaults;
  std::vector<std::string> inputs;
  for (const gipo::OptionGroup& group : gipo::option_table()) {
    inputs.emplace_back();
    for (const gipo::Option& o : group.options) inputs.back() += o.key + "=" + o.get(defaults) + "\n";
  }
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
  if (loaded.origins.empty()) return 0;
  const std::string written = gipo::config_to_toml(loaded.config);
  GIPO_CHECK(gipo::config_to_toml(gipo::parse_config(written, "written").config) == written);
  return 0;
}
