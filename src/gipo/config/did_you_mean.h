#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gipo {

// " (did you mean X?)" for the nearest known word, or "" when none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace gipo
