#pragma once

#include <toml++/toml.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gipo/config/options.h"

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

// What a node holds, for the option `key`. Nothing where no option takes a value of this kind: a date.
std::optional<OptionValue> read_node(const toml::node& node, const std::string& key, const std::string& where);
[[noreturn]] void refuse_deep(const std::string& key, const std::string& where);
// The node for a message.
std::string shown(const toml::node& node);

}  // namespace gipo
