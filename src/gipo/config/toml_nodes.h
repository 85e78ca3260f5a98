#pragma once

#include <toml++/toml.h>

#include <optional>
#include <string>
#include <string_view>

#include "gipo/config/option_value.h"

namespace gipo {

// What files with options in them share: one run's config, and a suite of runs.

// Throws Error with file and line.
toml::table parse_toml(std::string_view text, const std::string& name);
// "file.toml:12"
std::string place(const toml::node& node, const std::string& name);

// What a node holds, for the option `key`. Nothing where no option takes a value of this kind: a date.
std::optional<OptionValue> read_node(const toml::node& node, const std::string& key, const std::string& where);
[[noreturn]] void refuse_deep(const std::string& key, const std::string& where);
// Throws Error for text that TOML could not read back.
void refuse_unreadable(const OptionValue& value, const std::string& key, const std::string& where);
// The node for a message.
std::string shown(const toml::node& node);

}  // namespace gipo
