#include "gipo/train/faults.h"

#include <fmt/format.h>

namespace gipo {

std::string in_words(const FaultCounts& faults, const std::string& last) {
  if (faults.empty()) return "no segment is finished";
  std::string counts;
  for (const auto& [name, count] : faults) counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, name);
  return fmt::format("every segment was rejected ({}); the last: {}", counts, last);
}

}  // namespace gipo
