#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace gipo {

using Widths = std::vector<std::int64_t>;

// What no option of a run takes but a task of a Python package may: nothing (Python's None), a list of anything, a table
// with its keys in order.
struct NestedItem;
struct Nested {
  enum class Kind { kNull, kList, kTable };
  Kind kind = Kind::kNull;
  std::vector<NestedItem> items;

  bool operator==(const Nested& other) const;
};

// A value as written in a file or after --set, before it is known what the option wants. A list is of the first kind
// that holds it unchanged: integers, numbers, or Nested where it is mixed.
using OptionValue = std::variant<bool, std::int64_t, double, std::string, Widths, std::vector<double>, Nested>;
using OptionValues = std::map<std::string, OptionValue>;

struct NestedItem {
  std::string key;  // of a table
  OptionValue value;

  bool operator==(const NestedItem& other) const = default;
};

// Levels of lists and tables in a value, at most: what reads and writes one calls itself for each.
inline constexpr std::size_t kMostLevels = 32;
// 0 for a value without parts.
std::size_t depth_of(const OptionValue& value);

OptionValue list_value(std::vector<OptionValue> items);
bool is_null(const OptionValue& value);

// A value as TOML reads it back. TOML has no word for nothing: it is the text "@none", and text that is itself "@none",
// "@@none" and so on is written with one more @.
std::string to_toml(const OptionValue& value);
std::string toml_key(const std::string& name);
std::string toml_text(const std::string& text);  // as it is, in quotes
// The other way: texts as TOML read them, each as what it means.
OptionValue without_spelling(OptionValue value);
// As Python's json module reads it: numbers that are not finite are NaN and Infinity, the keys are in order.
std::string to_json(const OptionValue& value);

}  // namespace gipo
