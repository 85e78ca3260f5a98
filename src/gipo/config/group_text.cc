#include "gipo/config/group_text.h"

#include "gipo/config/toml_nodes.h"

namespace gipo {

std::vector<Setting> read_settings(std::string_view text, const std::string& name) {
  std::vector<Setting> settings;
  const auto add = [&](const std::string& key, const toml::node& node) {
    const std::string where = place(node, name);
    settings.push_back({key, shown(node), where, read_node(node, key, where)});
  };
  for (const auto& [group, node] : parse_toml(text, name)) {
    const std::string prefix(group.str());
    if (const toml::table* options = node.as_table()) {
      for (const auto& [key, value] : *options) add(prefix + "." + std::string(key.str()), value);
    } else {
      add(prefix, node);
    }
  }
  return settings;
}

}  // namespace gipo
