#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gipo {

inline constexpr std::size_t kMostTomlBytes = 16 * 1024 * 1024;

// What must hold of a TOML text before it is parsed, so that parsing takes neither the stack nor more than a few
// seconds: its size, how deep lists and tables lie in each other, the parts of a key, and the number of keys with
// parts. Throws Error with `name` and the line. Says nothing of whether the text is TOML.
void check_toml_shape(std::string_view text, const std::string& name);

}  // namespace gipo
