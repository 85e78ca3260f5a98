#include "gipo/plan/presets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "gipo/config/did_you_mean.h"
#include "gipo/core/error.h"
#include "gipo/core/python.h"
#include "gipo/io/files.h"
#include "gipo/plan/built_in_presets.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".toml";

std::vector<PresetConfig> presets_in(const fs::path& folder) {
  std::vector<PresetConfig> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().extension() != kEnding) continue;
    found.push_back(
        {fs::relative(entry.path(), folder).replace_extension().string(), read_file(entry.path().string())});
  }
  std::ranges::sort(found, {}, &PresetConfig::name);
  return found;
}

// What somebody may have meant who wrote the path of a clone.
std::string as_preset(std::string name) {
  if (name.starts_with("configs/")) name.erase(0, 8);
  if (name.ends_with(kEnding)) name.erase(name.size() - 5);
  return name;
}

}  // namespace

std::string PresetConfig::about() const {
  std::string words;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && line.starts_with("# ");) {
    words += (words.empty() ? "" : " ") + line.substr(2);
    if (const std::size_t end = (words + " ").find(". "); end != std::string::npos) return words.substr(0, end + 1);
  }
  return words;
}

std::vector<PresetConfig> preset_configs() {
  const std::string root = checkout();
  std::error_code ignored;
  return !root.empty() && fs::is_directory(root + "/configs", ignored) ? presets_in(root + "/configs")
                                                                       : built_in_presets();
}

LoadedConfig load_config_or_preset(const std::string& path_or_name) {
  std::error_code ignored;
  if (fs::exists(path_or_name, ignored)) return load_config(path_or_name);
  std::vector<std::string> names;
  for (const PresetConfig& preset : preset_configs()) {
    if (preset.name == path_or_name) return parse_config(preset.text, "preset " + preset.name);
    names.push_back(preset.name);
  }
  throw Error(fmt::format("{}: there is no such file, and no preset of that name{}; presets: {}", path_or_name,
                          did_you_mean(as_preset(path_or_name), names), fmt::join(names, ", ")));
}

}  // namespace gipo
