#include "gipo/config/toml_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "gipo/config/toml_shape.h"
#include "gipo/core/error.h"

namespace gipo {
namespace {

class NodeReader {
 public:
  NodeReader(const std::string& key, const std::string& where) : key_(key), where_(where) {}

  std::optional<OptionValue> read(const toml::node& node, std::size_t level = 0) const {
    if (const auto* v = node.as_boolean()) return v->get();
    if (const auto* v = node.as_integer()) return v->get();
    if (const auto* v = node.as_floating_point()) return v->get();
    if (const auto* v = node.as_string()) return v->get();
    if (level == kMostLevels) refuse_deep(key_, where_);
    if (const auto* list = node.as_array()) return read_list(*list, level + 1);
    if (const auto* table = node.as_table()) return read_table(*table, level + 1);
    return std::nullopt;
  }

 private:
  std::optional<OptionValue> read_list(const toml::array& list, std::size_t level) const {
    std::vector<OptionValue> items;
    for (const toml::node& node : list) {
      std::optional<OptionValue> item = read(node, level);
      if (!item) return std::nullopt;
      items.push_back(std::move(*item));
    }
    return list_value(std::move(items));
  }

  // The parser sorts keys by name; their places in the file say how they were written.
  std::optional<OptionValue> read_table(const toml::table& table, std::size_t level) const {
    std::vector<std::pair<toml::source_position, NestedItem>> found;
    for (const auto& [key, node] : table) {
      std::optional<OptionValue> item = read(node, level);
      if (!item) return std::nullopt;
      found.push_back({key.source().begin, {std::string(key.str()), std::move(*item)}});
    }
    std::ranges::stable_sort(found, [](const auto& a, const auto& b) { return a.first < b.first; });
    Nested whole{Nested::Kind::kTable, {}};
    for (auto& entry : found) whole.items.push_back(std::move(entry.second));
    return whole;
  }

  const std::string &key_, &where_;
};

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

std::string shown(const toml::node& node) {
  if (node.is_table()) return "a table";
  std::ostringstream text;
  text << toml::node_view<const toml::node>(node);
  return text.str();
}

void refuse_deep(const std::string& key, const std::string& where) {
  throw Error(
      fmt::format("{}: {} is not accepted: it has more than {} levels of lists and tables", where, key, kMostLevels));
}

// The run saves its config: text that cannot be read back would make a run that cannot be resumed.
void refuse_unreadable(const OptionValue& value, const std::string& key, const std::string& where) {
  if (!std::holds_alternative<std::string>(value) && !std::holds_alternative<Nested>(value)) return;
  try {
    (void)toml::parse("v = " + to_toml(value));
  } catch (const toml::parse_error&) {
    throw Error(fmt::format("{}: the value of {} is not accepted: text in UTF-8 is wanted", where, key));
  }
}

std::optional<OptionValue> read_node(const toml::node& node, const std::string& key, const std::string& where) {
  return NodeReader(key, where).read(node);
}

}  // namespace gipo
