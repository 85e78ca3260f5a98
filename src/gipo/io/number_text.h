#pragma once

#include <optional>
#include <string>

namespace gipo {

// A number as people write it: decimal, with or without an exponent, spaces before it or a sign; inf and nan as words.
// Nothing where it is anything else. strtod alone would also take 0x10 for 16.
std::optional<double> decimal_number(const std::string& text);

}  // namespace gipo
