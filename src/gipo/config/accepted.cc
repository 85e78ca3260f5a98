#include "gipo/config/accepted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gipo/config/did_you_mean.h"
#include "gipo/config/option_value.h"
#include "gipo/core/error.h"

namespace gipo {
namespace accepted {

Accepted any() { return {}; }
Accepted range(double low, double high) { return {low, high, true, false, {}, {}}; }
Accepted above(double low) { return {low, HUGE_VAL, true, true, {}, {}}; }
Accepted one_of(std::vector<std::string> words) { return {0, 0, false, false, std::move(words), {}}; }
Accepted listed(std::string what) { return {0, 0, false, false, {}, std::move(what)}; }

}  // namespace accepted

std::string in_words(const Accepted& a) {
  if (a.ranged && a.open_low) return fmt::format("above {}", a.low);
  if (a.ranged) return fmt::format("{} to {}", a.low, a.high);
  if (!a.listed.empty()) return fmt::format("a name from `gipo list {}`", a.listed);
  std::string words;
  for (std::size_t i = 0; i < a.words.size(); ++i) {
    if (i > 0) words += i + 1 == a.words.size() ? " or " : ", ";
    words += a.words[i];
  }
  return words;
}

void refuse_value(const std::string& where, const std::string& key, const std::string& value,
                  const std::string& wanted) {
  throw Error(fmt::format("{}: {} = {} is not accepted: {}", where, key, value, wanted));
}

void check_number(const Accepted& a, double v, const std::string& where, const std::string& key,
                  const std::string& shown) {
  if (!std::isfinite(v)) refuse_value(where, key, shown, "a finite number is wanted");
  if (a.ranged && (v < a.low || v > a.high || (a.open_low && v <= a.low))) {
    refuse_value(where, key, shown, "wanted " + in_words(a));
  }
}

void check_word(const Accepted& a, const std::string& v, const std::string& where, const std::string& key) {
  if (a.words.empty() || std::find(a.words.begin(), a.words.end(), v) != a.words.end()) return;
  refuse_value(where, key, toml_text(v), "wanted " + in_words(a) + did_you_mean(v, a.words));
}

}  // namespace gipo
