#pragma once

#include <string>
#include <vector>

#include "gipo/config/option.h"
#include "gipo/plan/config.h"

namespace gipo {

// Every option of a run, in the order of docs/options.md and of a saved config.
const std::vector<OptionGroup<Config>>& option_table();

// Every option that is set, with its help as a comment; load_config reads it back to an equal Config.
std::string config_to_toml(const Config& config);
// The page docs/options.md.
std::string options_page();

}  // namespace gipo
