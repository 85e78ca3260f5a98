#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gipo/plan/config_file.h"

namespace gipo {

// In place of a config: the settings are chosen for the task.
inline constexpr char kAutomatic[] = "auto";

struct ChosenConfig {
  LoadedConfig loaded;
  std::vector<std::string> chosen;  // what was chosen and why, in lines; empty where a config was given
};

// The config of a run: that of a file or preset, kAutomatic, or the defaults where `config` is empty; then what `set` sets
// in it. Throws Error.
//
// kAutomatic takes the preset of the zoo that has the task. For any other task it takes classic/stale, and from the task
// itself the number of environments, the networks, the scale of rewards, the length of the run and the replay: a few
// hundred random steps show how long episodes are and how large returns.
ChosenConfig choose_config(const std::string& config, const std::function<void(LoadedConfig&)>& set);

}  // namespace gipo
