#include "gipo/cli/study_commands.h"

#include <fmt/format.h>

#include <cstdlib>

namespace gipo::cli {

CLI::Validator number_in(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& text) {
        char* rest = nullptr;
        const double value = std::strtod(text.c_str(), &rest);
        if (!text.empty() && *rest == '\0' && value >= low && value <= high) return std::string();
        return fmt::format("{} is not accepted: wanted a number from {} to {}", text, low, high);
      },
      fmt::format("[{} - {}]", low, high));
}

}  // namespace gipo::cli
