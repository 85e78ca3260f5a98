#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gipo {

// Bytes. A file system takes names of 255 and paths of 4,095; the rest is room for what is made beside and inside.
inline constexpr std::size_t kMostNameBytes = 200, kMostPathBytes = 3800;

// What no file system would take, in words, or nothing: a zero byte, or a name or path that is too long. To be asked
// before anything is created.
std::string name_fault(std::string_view name);
std::string path_fault(std::string_view path);

// For messages: in quotes, as TOML reads it; a long one with its beginning and its length.
std::string shown_text(const std::string& text);

}  // namespace gipo
