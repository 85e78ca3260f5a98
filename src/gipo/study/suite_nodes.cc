#include "gipo/study/suite_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "gipo/core/error.h"
#include "gipo/plan/config_toml.h"

namespace gipo {

void refuse_node(const toml::node& node, const std::string& name, const std::string& why) {
  throw Error(fmt::format("{}: {}", place(node, name), why));
}

std::string text_of(const toml::node& node, const char* key, const std::string& name) {
  const auto* v = node.as_string();
  if (!v || v->get().empty()) refuse_node(node, name, fmt::format("{}: wanted text", key));
  return v->get();
}

double number_of(const toml::node& node, const char* key, const std::string& name) {
  const std::optional<double> v = node.is_number() ? node.value<double>() : std::nullopt;
  if (!v || !std::isfinite(*v)) refuse_node(node, name, fmt::format("{}: wanted a number", key));
  return *v;
}

std::vector<std::int64_t> seeds_of(const toml::node& node, const char* key, const std::string& name) {
  const toml::array* list = node.as_array();
  if (!list || list->empty()) refuse_node(node, name, fmt::format("{}: wanted a list of whole numbers", key));
  std::vector<std::int64_t> seeds;
  std::set<std::int64_t> seen;
  for (const toml::node& item : *list) {
    const auto* seed = item.as_integer();
    if (!seed || seed->get() < 0) refuse_node(item, name, fmt::format("{}: wanted whole numbers from 0 on", key));
    if (!seen.insert(seed->get()).second) {
      refuse_node(item, name, fmt::format("{}: {} stands there twice", key, seed->get()));
    }
    seeds.push_back(seed->get());
  }
  return seeds;
}

std::string file_name_of(std::string text) {
  for (char& c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && std::string_view("-._+").find(c) == std::string_view::npos) {
      c = '_';
    }
  }
  return text;
}

std::string setting_toml(const RunSetting& s) {
  const bool of_task = s.key.starts_with(kEnvOptions);
  const std::string key = of_task ? std::string(kEnvOptions) + toml_key(s.key.substr(kEnvOptions.size())) : s.key;
  return key + " = " + to_toml(s.value);
}

RunSetting setting_of(const toml::node& node, const std::string& key, const std::string& name) {
  const std::string where = place(node, name);
  refuse_own_option(key, where);
  std::optional<OptionValue> value = read_node(node, key, where);
  if (!value) throw Error(fmt::format("{}: {} = {} is not accepted: no option takes this", where, key, shown(node)));
  if (key.starts_with(kEnvOptions)) value = without_spelling(std::move(*value));
  LoadedConfig unused;
  set_option(unused, key, *value, where);
  return {key, std::move(*value), where};
}

void for_each_option(const toml::table& table, const std::vector<std::string>& others, const std::string& name,
                     const std::function<void(const std::string& key, const toml::node& node)>& f) {
  for (const auto& [key, node] : table) {
    const std::string group(key.str());
    if (std::find(others.begin(), others.end(), group) != others.end()) continue;
    LoadedConfig unused;
    if (!node.is_table()) apply_group(unused, group, node, name, others);  // throws
    for (const auto& [option, value] : *node.as_table()) {
      const std::string full = group + "." + std::string(option.str());
      const toml::table* of_task = full + "." == kEnvOptions ? value.as_table() : nullptr;
      if (!of_task) {
        f(full, value);
        continue;
      }
      for (const auto& [inner, v] : *of_task) {
        if (inner.str().find('.') != std::string_view::npos) {
          refuse_node(v, name, fmt::format("{}.\"{}\": wanted a name without a dot", full, inner.str()));
        }
        f(full + "." + std::string(inner.str()), v);
      }
    }
  }
}

void refuse_own_option(const std::string& key, const std::string& where) {
  for (const char* own : {"run.name", "run.dir", "run.seed"}) {
    if (key == own) throw Error(fmt::format("{}: {} is the suite's own to set", where, own));
  }
}

}  // namespace gipo
