#pragma once

#include <string>
#include <vector>

#include "gipo/plan/config_file.h"

namespace gipo {

// A ready-made config: configs/classic/stale.toml is the preset classic/stale.
struct PresetConfig {
  std::string name, text;
  // The first sentence of the comment that it begins with.
  std::string about() const;
};

// All of them, by name: those of the checkout that this was built in, elsewhere the copies that were built in.
std::vector<PresetConfig> preset_configs();

// The config in a file, or the preset of that name; a file that is there comes first. Throws Error, which names all
// presets where there is neither.
LoadedConfig load_config_or_preset(const std::string& path_or_name);

}  // namespace gipo
