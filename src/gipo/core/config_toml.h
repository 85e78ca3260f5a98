#pragma once

#include <toml++/toml.h>

#include <string>
#include <string_view>
#include <vector>

#include "gipo/core/options.h"

namespace gipo {

// What files with options in them share: one run's config, and a suite of runs.

// Throws Error with file and line.
toml::table parse_toml(std::string_view text, const std::string& name);
// "file.toml:12"
std::string place(const toml::node& node, const std::string& name);
// Sets the options of one group, each with its line as origin. `others`: what else may stand where the group does, for
// the message about an unknown one.
void apply_group(LoadedConfig& loaded, const std::string& group, const toml::node& node, const std::string& name,
                 const std::vector<std::string>& others = {});

}  // namespace gipo
