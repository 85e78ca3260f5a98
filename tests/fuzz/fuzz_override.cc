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
  // What was set can be written and set again.
  for (const gipo::OptionGroup& group : gipo::option_table()) {
    for (const gipo::Option& o : group.options) {
      if (!loaded.origins.contains(o.key)) continue;
      gipo::LoadedConfig again;
      gipo::apply_override(again, o.key + "=" + o.get(loaded.config));
      GIPO_CHECK(o.get(again.config) == o.get(loaded.config));
    }
  }
  return 0;
}
