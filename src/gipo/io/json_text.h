#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace gipo {

struct JsonLimits {
  std::size_t bytes = 16 * 1024 * 1024;
  std::size_t depth = 32;  // lists and objects inside each other
};

// JSON that somebody hands over. It stops at the first fault and takes time in proportion to the text, so that neither
// a huge nor a deeply nested one holds up the program or takes its stack. Throws Error with `where`, line or keys, and
// what is wrong: not JSON, beyond a limit, a number that a double cannot hold, a key that stands twice in one object.
// For nlohmann::json and nlohmann::ordered_json.
template <class Json>
Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits = {});

}  // namespace gipo
