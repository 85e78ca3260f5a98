#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gipo/config/toml_nodes.h"

namespace gipo {

// What readers of a suite's file share. `name` is the file's; everything throws Error with file and line.

[[noreturn]] void refuse_node(const toml::node& node, const std::string& name, const std::string& why);
std::string text_of(const toml::node& node, const char* key, const std::string& name);
double number_of(const toml::node& node, const char* key, const std::string& name);
// Whole numbers from 0 on, none twice.
std::vector<std::int64_t> seeds_of(const toml::node& node, const char* key, const std::string& name);

// `text` as a shell and a file system take it as it is.
std::string file_name_of(std::string text);

// One option of a run, as a file gives it.
struct RunSetting {
  std::string key;  // "learner.policy_lr", "env.options.NAME"
  OptionValue value;
  std::string where;  // "suite.toml:12"
};
// "learner.policy_lr = 0.001", as TOML reads it.
std::string setting_toml(const RunSetting& setting);

// Throws for an option that does not exist, one that is the suite's own to set, and a value that it does not take.
RunSetting setting_of(const toml::node& node, const std::string& key, const std::string& name);
// Calls f(key, node) for everything that stands where options may, but for `others`.
void for_each_option(const toml::table& table, const std::vector<std::string>& others, const std::string& name,
                     const std::function<void(const std::string& key, const toml::node& node)>& f);

// The suite sets these itself. Throws for one of them.
void refuse_own_option(const std::string& key, const std::string& where);

}  // namespace gipo
