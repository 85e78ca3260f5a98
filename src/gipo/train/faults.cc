#include "gipo/train/faults.h"

#include <fmt/format.h>

#include <utility>

namespace gipo {

void Rejections::add(const char* name, std::string why) {
  ++count;
  ++by_name[name];
  last = std::move(why);
}

void Rejections::add(const Rejections& later) {
  count += later.count;
  for (const auto& [name, n] : later.by_name) by_name[name] += n;
  if (!later.last.empty()) last = later.last;
}

void Rejections::clear() {
  count = 0;
  by_name.clear();
  last.clear();
}

std::string in_words(const Rejections& rejections) {
  if (rejections.by_name.empty()) return "no segment is finished";
  std::string counts;
  for (const auto& [name, count] : rejections.by_name)
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, name);
  return fmt::format("every segment was rejected ({}); the last: {}", counts, rejections.last);
}

}  // namespace gipo
