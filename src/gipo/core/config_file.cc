// The file parser and --set: both turn text into an OptionValue and hand it to the option's row of the table.
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "gipo/core/config_toml.h"
#include "gipo/core/error.h"
#include "gipo/core/files.h"
#include "gipo/core/options.h"
#include "gipo/core/toml_shape.h"

namespace gipo {
namespace {

const Option& find_option(const std::string& key, const std::string& where) {
  for (const OptionGroup& group : option_table()) {
    for (const Option& o : group.options) {
      if (o.key == key) return o;
    }
  }
  std::vector<std::string> known, homeless;
  for (const OptionGroup& group : option_table()) {
    for (const Option& o : group.options) {
      known.push_back(o.key);
      if (o.key.ends_with("." + key)) homeless.push_back(o.key);
    }
  }
  // A name without its group is nearer to what was meant than any other key.
  const std::string nearest =
      homeless.empty() ? did_you_mean(key, known) : fmt::format(" (did you mean {}?)", fmt::join(homeless, " or "));
  throw Error(fmt::format("{}: unknown option {}{}; `gipo list options` shows all", where, key, nearest));
}

// Integers where all are, numbers where one is not; nothing where one is neither.
std::optional<OptionValue> to_list(const toml::array& list) {
  std::vector<std::int64_t> whole;
  std::vector<double> numbers;
  for (const toml::node& item : list) {
    if (!item.is_number()) return std::nullopt;
    if (const auto* v = item.as_integer()) whole.push_back(v->get());
    numbers.push_back(*item.value<double>());
  }
  if (whole.size() == numbers.size()) return whole;
  return numbers;
}

// Nothing where no option takes a value of this kind: a date, a table, a list of anything but numbers.
std::optional<OptionValue> to_value(const toml::node& node) {
  if (const auto* v = node.as_boolean()) return v->get();
  if (const auto* v = node.as_integer()) return v->get();
  if (const auto* v = node.as_floating_point()) return v->get();
  if (const auto* v = node.as_string()) return v->get();
  if (const auto* list = node.as_array()) return to_list(*list);
  return std::nullopt;
}

std::string shown(const toml::node& node) {
  if (node.is_table()) return "a table";
  std::ostringstream text;
  text << toml::node_view<const toml::node>(node);
  return text.str();
}

// The run saves its config: text that cannot be read back would make a run that cannot be resumed.
void refuse_unreadable(const OptionValue& value, const std::string& key, const std::string& where) {
  if (!std::holds_alternative<std::string>(value)) return;
  try {
    (void)toml::parse("v = " + to_toml(value));
  } catch (const toml::parse_error&) {
    throw Error(fmt::format("{}: the value of {} is not accepted: text in UTF-8 is wanted", where, key));
  }
}

// Kept as it is: the task, which may be chosen later, checks it.
void keep_env_option(LoadedConfig& loaded, const OptionValue& value, const std::string& key, const std::string& where) {
  const std::string name = key.substr(kEnvOptions.size());
  refuse_unreadable(name, key, where);
  refuse_unreadable(value, key, where);
  loaded.config.env_options[name] = value;
  loaded.origins[key] = where;
}

void set_env_option(LoadedConfig& loaded, const toml::node& node, const std::string& key, const std::string& where) {
  const std::optional<OptionValue> value = to_value(node);
  if (!value) {
    throw Error(fmt::format("{}: {} = {} is not accepted: wanted true or false, a number, text or a list of numbers",
                            where, key, shown(node)));
  }
  keep_env_option(loaded, *value, key, where);
}

void set_from(LoadedConfig& loaded, const toml::node& node, const std::string& key, const std::string& where) {
  if (key.starts_with(kEnvOptions)) return set_env_option(loaded, node, key, where);
  const Option& option = find_option(key, where);
  const std::optional<OptionValue> value = to_value(node);
  if (!value) {
    throw Error(fmt::format("{}: {} = {} is not accepted: wanted {}{}{}", where, key, shown(node), option.type,
                            option.accepted.empty() ? "" : ", ", option.accepted));
  }
  set_option(loaded, key, *value, where);
}

}  // namespace

toml::table parse_toml(std::string_view text, const std::string& name) {
  check_toml_shape(text, name);
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& e) {
    throw Error(fmt::format("{}:{}: not valid TOML: {}", name, e.source().begin.line, e.description()));
  }
}

std::string place(const toml::node& node, const std::string& name) {
  return fmt::format("{}:{}", name, node.source().begin.line);
}

void apply_group(LoadedConfig& loaded, const std::string& group_name, const toml::node& node, const std::string& name,
                 const std::vector<std::string>& others) {
  std::vector<std::string> known = others;
  for (const OptionGroup& g : option_table()) known.push_back(g.name);
  const toml::table* table = node.as_table();
  if (!table && others.empty()) find_option(group_name, place(node, name));  // throws: no option stands outside a group
  if (std::find(known.begin(), known.end(), group_name) == known.end()) {
    throw Error(fmt::format("{}: unknown {} {}{}; known: {}", place(node, name), others.empty() ? "group" : "key",
                            others.empty() ? "[" + group_name + "]" : group_name, did_you_mean(group_name, known),
                            fmt::join(known, ", ")));
  }
  if (!table)
    throw Error(fmt::format("{}: {}: wanted options, {}.NAME = VALUE", place(node, name), group_name, group_name));
  for (const auto& [key, value] : *table) {
    const std::string full = group_name + "." + std::string(key.str());
    const toml::table* options = full + "." == kEnvOptions ? value.as_table() : nullptr;
    if (!options) {
      set_from(loaded, value, full, place(value, name));
      continue;
    }
    for (const auto& [option, v] : *options) {
      set_env_option(loaded, v, full + "." + std::string(option.str()), place(v, name));
    }
  }
}

LoadedConfig parse_config(std::string_view text, const std::string& name) {
  LoadedConfig loaded;
  for (const auto& [group, node] : parse_toml(text, name)) apply_group(loaded, std::string(group.str()), node, name);
  return loaded;
}

LoadedConfig load_config(const std::string& path) { return parse_config(read_file(path, kMostTomlBytes), path); }

void set_option(LoadedConfig& loaded, const std::string& key, const OptionValue& value, const std::string& where) {
  if (key.starts_with(kEnvOptions)) return keep_env_option(loaded, value, key, where);
  const Option& option = find_option(key, where);
  refuse_unreadable(value, key, where);
  option.set(loaded.config, value, where);
  loaded.origins[key] = where;
}

void apply_override(LoadedConfig& loaded, const std::string& assignment) {
  check_toml_shape(assignment, "--set");
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(fmt::format("--set {}: wanted group.name=value", assignment));
  }
  const std::string key = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  if (!key.starts_with(kEnvOptions)) find_option(key, "--set");
  // As TOML where it is TOML, as a bare word otherwise.
  toml::table parsed;
  try {
    parsed = toml::parse("v = " + value);
  } catch (const toml::parse_error&) {
    parsed.clear();
  }
  if (parsed.size() != 1) parsed = toml::table{{"v", value}};
  set_from(loaded, *parsed.get("v"), key, "--set");
}

}  // namespace gipo
