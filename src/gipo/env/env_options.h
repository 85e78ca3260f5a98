#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gipo/config/option_value.h"

namespace gipo {

// The keys of the table [env.options] begin so, in `--set` and where origins are kept.
inline constexpr std::string_view kEnvOptions = "env.options.";

// One option of a task, set as env.options.NAME. The type is that of its default; a pair of numbers is a range, its
// ends in order, which may be infinite.
struct EnvOption {
  std::string name;
  OptionValue value;  // the default
  std::string help;
  double low = -std::numeric_limits<double>::infinity();  // of a number
  bool or_text = false;                                   // an integer that may also be given as a name

  std::string type() const;      // "number", "integer", "true or false", "text", "range [low, high]"
  std::string accepted() const;  // in words: "0 or more", "1 to 1000000"; empty where any value is
};

// What the task makes of the values that were given: every option it has, each of its own type. Throws Error naming
// env.options.NAME, the value and what is accepted; for an unknown one, the nearest.
OptionValues resolve_options(const std::string& task, const std::vector<EnvOption>& known, const OptionValues& given);

}  // namespace gipo
