#include "gipo/io/number_text.h"

#include <cstdlib>

namespace gipo {

std::optional<double> decimal_number(const std::string& text) {
  if (text.find_first_of("xX(") != text.npos) return std::nullopt;  // hexadecimal, and the nan(...) of C
  char* rest = nullptr;
  const double value = std::strtod(text.c_str(), &rest);
  if (rest == text.c_str() || rest != text.c_str() + text.size()) return std::nullopt;
  return value;
}

}  // namespace gipo
