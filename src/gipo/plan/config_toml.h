#pragma once

#include <string>
#include <vector>

#include "gipo/config/toml_nodes.h"
#include "gipo/plan/config_file.h"

namespace gipo {

// Sets the options of one group, each with its line as origin. `others`: what else may stand where the group does, for
// the message about an unknown one.
void apply_group(LoadedConfig& loaded, const std::string& group, const toml::node& node, const std::string& name,
                 const std::vector<std::string>& others = {});

}  // namespace gipo
