// The file parser and --set: both turn text into an OptionValue and hand it to the option's row of the table.
#include "gipo/plan/config_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "gipo/config/did_you_mean.h"
#include "gipo/config/toml_nodes.h"
#include "gipo/config/toml_shape.h"
#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/plan/config_toml.h"
#include "gipo/plan/option_table.h"

namespace gipo {
namespace {

// Of the options of a task, as text: they stand in the state of every checkpoint, whose size is bounded too.
constexpr std::size_t kMostOptionBytes = 64 * 1024;

constexpr const char *kUpdates = "learner.updates", *kEnvSteps = "learner.env_steps";

const Option<Config>& option_of(const std::string& key, const std::string& where) {
  return find_option<Config>(option_table(), key, where);
}

// The parts of what follows "env.options.": the option's name, and where a dot follows, the keys that lead into it.
std::vector<std::string> path_of(const std::string& key, const std::string& where) {
  std::vector<std::string> parts;
  std::istringstream names(key.substr(kEnvOptions.size()) + ".");
  for (std::string part; std::getline(names, part, '.');) parts.push_back(part);
  if (std::ranges::find(parts, "") != parts.end()) {
    throw Error(fmt::format("{}: unknown option {}: wanted {}NAME, or {}NAME.KEY inside a table", where, key,
                            kEnvOptions, kEnvOptions));
  }
  if (parts.size() > kMostLevels) refuse_deep(key, where);
  return parts;
}

// `whole` with `value` at the place that the path leads to from `at` on; tables that are not there yet are made.
OptionValue set_inside(OptionValue whole, const std::vector<std::string>& path, std::size_t at,
                       const OptionValue& value, const std::string& where) {
  if (at == path.size()) return value;
  auto* table = std::get_if<Nested>(&whole);
  if (!table || table->kind != Nested::Kind::kTable) {
    throw Error(fmt::format("{}: {}{} is not accepted: {} is {} and no table", where, kEnvOptions, fmt::join(path, "."),
                            path[at - 1], to_toml(whole)));
  }
  const auto it = std::ranges::find(table->items, path[at], &NestedItem::key);
  const OptionValue none = Nested{Nested::Kind::kTable, {}};
  OptionValue inner = set_inside(it == table->items.end() ? none : it->value, path, at + 1, value, where);
  if (it == table->items.end()) {
    table->items.push_back({path[at], std::move(inner)});
  } else {
    it->value = std::move(inner);
  }
  return whole;
}

// Kept as it is: the task, which may be chosen later, checks it.
void keep_env_option(LoadedConfig& loaded, const OptionValue& value, const std::string& key, const std::string& where) {
  const std::vector<std::string> path = path_of(key, where);
  const auto it = loaded.config.env_options.find(path[0]);
  const OptionValue before = it == loaded.config.env_options.end() ? Nested{Nested::Kind::kTable, {}} : it->second;
  const OptionValue whole = set_inside(before, path, 1, value, where);
  if (depth_of(whole) > kMostLevels) refuse_deep(key, where);
  for (const std::string& part : path) refuse_unreadable(part, key, where);
  refuse_unreadable(value, key, where);
  OptionValues all = loaded.config.env_options;
  all[path[0]] = whole;
  std::size_t bytes = 0;
  for (const auto& [name, v] : all) bytes += toml_key(name).size() + to_toml(v).size();
  if (bytes > kMostOptionBytes) {
    throw Error(
        fmt::format("{}: {} is not accepted: the options of the task take {} bytes as TOML, at most {} are kept", where,
                    key, bytes, kMostOptionBytes));
  }
  loaded.config.env_options = std::move(all);
  loaded.origins[std::string(kEnvOptions) + path[0]] = where;
}

void set_env_option(LoadedConfig& loaded, const toml::node& node, const std::string& key, const std::string& where) {
  const std::optional<OptionValue> value = read_node(node, key, where);
  if (!value) {
    throw Error(
        fmt::format("{}: {} = {} is not accepted: wanted true or false, a number, text, \"@none\", or lists and tables "
                    "of these",
                    where, key, shown(node)));
  }
  keep_env_option(loaded, without_spelling(*value), key, where);
}

void set_from(LoadedConfig& loaded, const toml::node& node, const std::string& key, const std::string& where) {
  if (key.starts_with(kEnvOptions)) return set_env_option(loaded, node, key, where);
  const Option<Config>& option = option_of(key, where);
  const std::optional<OptionValue> value = read_node(node, key, where);
  if (!value) refuse_kind(option, shown(node), where);
  set_option(loaded, key, *value, where);
}

// What a place is part of: its file, or the command line.
std::string source_of(const std::string& where) {
  return where.starts_with("--") ? "--" : where.substr(0, where.rfind(':'));
}

// The length of a run is given in updates or in env steps. Of two sources the later one counts; one source that gives
// both contradicts itself. Changes `config` where `key` takes the place of the other.
void choose_length(Config& config, Origins& origins, const std::string& key, const std::string& where) {
  if ((key != kUpdates && key != kEnvSteps) || config.learner.env_steps == 0) return;
  const auto other = origins.find(key == kUpdates ? kEnvSteps : kUpdates);
  if (other == origins.end()) return;
  if (source_of(other->second) == source_of(where)) {
    throw Error(
        fmt::format("{}: learner.env_steps = {} is not accepted beside learner.updates = {}: each says how long "
                    "the run is; leave one out ({} is set by {})",
                    where, config.learner.env_steps, config.learner.updates, other->first, other->second));
  }
  if (key == kUpdates) config.learner.env_steps = 0;
  origins.erase(other);
}

}  // namespace

void apply_group(LoadedConfig& loaded, const std::string& group_name, const toml::node& node, const std::string& name,
                 const std::vector<std::string>& others) {
  std::vector<std::string> known = others;
  for (const OptionGroup<Config>& g : option_table()) known.push_back(g.name);
  const toml::table* table = node.as_table();
  if (!table && others.empty()) option_of(group_name, place(node, name));  // throws: no option stands outside a group
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
      if (option.str().find('.') != std::string_view::npos) {
        throw Error(fmt::format("{}: {}.\"{}\" is not accepted: wanted a name without a dot", place(v, name), full,
                                option.str()));
      }
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

std::string origin_of(const Origins& origins, const std::string& key) {
  const auto it = origins.find(key);
  return it == origins.end() ? "default" : it->second;
}

void set_option(LoadedConfig& loaded, const std::string& key, const OptionValue& value, const std::string& where) {
  if (key.starts_with(kEnvOptions)) return keep_env_option(loaded, value, key, where);
  const Option<Config>& option = option_of(key, where);
  refuse_unreadable(value, key, where);
  Config config = loaded.config;
  option.set(config, value, where);
  choose_length(config, loaded.origins, key, where);
  loaded.config = std::move(config);
  loaded.origins[key] = where;
}

void forget_length(LoadedConfig& loaded) {
  loaded.config.learner.updates = LearnerOptions().updates;
  loaded.config.learner.env_steps = 0;
  loaded.origins.erase(kUpdates);
  loaded.origins.erase(kEnvSteps);
}

void apply_override(LoadedConfig& loaded, const std::string& assignment) {
  check_toml_shape(assignment, "--set");
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(fmt::format("--set {}: wanted group.name=value", assignment));
  }
  const std::string key = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  if (!key.starts_with(kEnvOptions)) option_of(key, "--set");
  // As TOML where it is TOML, as a bare word otherwise. What begins as a list or a table was never meant as a word.
  toml::table parsed;
  try {
    parsed = toml::parse("v = " + value);
  } catch (const toml::parse_error& e) {
    if (value.starts_with('{') || value.starts_with('[')) {
      throw Error(
          fmt::format("--set: {} = {} is not accepted: not valid TOML: {}; wanted [1, \"text\"] or {{a = 1, "
                      "b = [true, \"@none\"]}}",
                      key, value, e.description()));
    }
    parsed.clear();
  }
  if (parsed.size() != 1) parsed = toml::table{{"v", value}};
  set_from(loaded, *parsed.get("v"), key, "--set");
}

}  // namespace gipo
