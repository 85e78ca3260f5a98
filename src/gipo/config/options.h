#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gipo/config/config.h"

namespace gipo {

// One row of the option table.
struct Option {
  std::string key;       // "surrogate.sigma"
  std::string type;      // "number", "integer", "text", "true or false", "list of integers"
  std::string value;     // the default as TOML, or "unset"
  std::string accepted;  // in words: "0.001 to 1000", "gaussian, laplacian or cauchy"
  std::string help;
  // Sets the option; throws Error naming key, value, what is accepted and where (file and line, or --set).
  std::function<void(Config&, const OptionValue&, const std::string& where)> set;
  // The value as TOML; empty when unset.
  std::function<std::string(const Config&)> get;
};

struct OptionGroup {
  std::string name, help;
  std::vector<Option> options;
};

const std::vector<OptionGroup>& option_table();

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
void set_option(LoadedConfig& loaded, const std::string& key, const OptionValue& value, const std::string& where);
// Applies one "a.b=c", c as in TOML or a bare word.
void apply_override(LoadedConfig& loaded, const std::string& assignment);
// Every option that is set, with its help as a comment; load_config reads it back to an equal Config.
std::string config_to_toml(const Config& config);
// The page docs/options.md.
std::string options_page();

// The keys of the table [env.options] begin so, in `--set` and in Origins.
inline constexpr std::string_view kEnvOptions = "env.options.";

// " (did you mean X?)" for the nearest known word, or "" when none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);
// Where the key was set, for messages: "file.toml:12", "--set", or "default".
std::string origin_of(const Origins& origins, const std::string& key);

}  // namespace gipo
