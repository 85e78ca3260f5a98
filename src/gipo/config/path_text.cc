#include "gipo/config/path_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "gipo/config/option_value.h"

namespace gipo {
namespace {

constexpr std::size_t kMostShown = 40;
constexpr std::size_t kMostPartBytes = 255;  // the file system's own limit, for folders that exist already

}  // namespace

std::string name_fault(std::string_view name) {
  if (name.find('\0') != name.npos) return "a name without a zero byte is wanted";
  if (name.size() > kMostNameBytes) return fmt::format("a name of at most {} bytes is wanted", kMostNameBytes);
  return "";
}

std::string path_fault(std::string_view path) {
  if (path.find('\0') != path.npos) return "a path without a zero byte is wanted";
  if (path.size() > kMostPathBytes) return fmt::format("a path of at most {} bytes is wanted", kMostPathBytes);
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    if (slash > kMostPartBytes) return fmt::format("each name in a path has at most {} bytes", kMostPartBytes);
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return "";
}

std::string shown_text(const std::string& text) {
  if (text.size() <= kMostShown) return to_toml(text);
  std::size_t end = kMostShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // between two characters
  return fmt::format("{}... ({} bytes)", to_toml(text.substr(0, end)), text.size());
}

}  // namespace gipo
