#pragma once

#include <map>
#include <string>
#include <string_view>

#include "gipo/env/env_options.h"
#include "gipo/plan/config.h"

namespace gipo {

// Where each key that the user set was set: "file.toml:12" or "--set".
using Origins = std::map<std::string, std::string>;

struct LoadedConfig {
  Config config;
  Origins origins;
};

// Reads a TOML file. Unknown keys, wrong types and values out of range throw Error with file and line; those of
// [env.options] are for the task to check.
LoadedConfig load_config(const std::string& path);
LoadedConfig parse_config(std::string_view text, const std::string& name);
// Sets one option; `where` is told in errors. Throws Error, changing nothing, also for text that is not UTF-8.
// learner.updates and learner.env_steps replace each other where they come from different sources: a file, another file,
// the command line. Both from one source are refused.
void set_option(LoadedConfig& loaded, const std::string& key, const OptionValue& value, const std::string& where);
// Applies one "a.b=c", c as in TOML or a bare word.
void apply_override(LoadedConfig& loaded, const std::string& assignment);

// As if neither of those two had been set.
void forget_length(LoadedConfig& loaded);

// Where the key was set, for messages: "file.toml:12", "--set", or "default".
std::string origin_of(const Origins& origins, const std::string& key);

}  // namespace gipo
