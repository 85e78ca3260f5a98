#include "gipo/config/option_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

namespace gipo {
namespace {

constexpr std::string_view kNone = "none";

// "@none", "@@none" and so on.
bool spells_none(std::string_view text) {
  if (text.size() <= kNone.size() || !text.ends_with(kNone)) return false;
  text.remove_suffix(kNone.size());
  return text.find_first_not_of('@') == text.npos;
}

std::string number(double v) {
  const std::string s = fmt::format("{}", v);  // shortest that reads back to the same double
  return s.find_first_of(".en") == std::string::npos ? s + ".0" : s;
}

// "[a, b]" or "{a, b}" of what f makes of each.
template <class List, class F>
std::string joined(const List& list, const char* brackets, F&& f) {
  std::string s(1, brackets[0]);
  for (const auto& item : list) s += (s.size() > 1 ? ", " : "") + f(item);
  return s + brackets[1];
}

struct TomlWriter {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return number(v); }
  std::string operator()(const std::string& v) const { return toml_text(spells_none(v) ? "@" + v : v); }
  template <class T>
  std::string operator()(const std::vector<T>& v) const {
    return joined(v, "[]", *this);
  }
  std::string operator()(const Nested& v) const {
    if (v.kind == Nested::Kind::kNull) return toml_text("@none");
    if (v.kind == Nested::Kind::kList) return joined(v.items, "[]", [](const auto& i) { return to_toml(i.value); });
    return joined(v.items, "{}", [](const auto& i) { return toml_key(i.key) + " = " + to_toml(i.value); });
  }
};

struct JsonWriter {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const {
    return std::isnan(v) ? "NaN" : std::isinf(v) ? (v < 0 ? "-Infinity" : "Infinity") : number(v);
  }
  std::string operator()(const std::string& v) const { return nlohmann::json(v).dump(); }
  template <class T>
  std::string operator()(const std::vector<T>& v) const {
    return joined(v, "[]", *this);
  }
  std::string operator()(const Nested& v) const {
    if (v.kind == Nested::Kind::kNull) return "null";
    if (v.kind == Nested::Kind::kList) return joined(v.items, "[]", [](const auto& i) { return to_json(i.value); });
    return joined(v.items, "{}", [this](const auto& i) { return (*this)(i.key) + ": " + to_json(i.value); });
  }
};

// Every item as a T, where every one is.
template <class T>
bool all_of_kind(const std::vector<OptionValue>& items) {
  return std::ranges::all_of(items, [](const OptionValue& v) { return std::holds_alternative<T>(v); });
}
template <class T>
std::vector<T> as_kind(const std::vector<OptionValue>& items) {
  std::vector<T> plain;
  plain.reserve(items.size());
  for (const OptionValue& item : items) plain.push_back(std::get<T>(item));
  return plain;
}

}  // namespace

bool Nested::operator==(const Nested& other) const { return kind == other.kind && items == other.items; }

std::size_t depth_of(const OptionValue& value) {
  if (std::holds_alternative<Widths>(value) || std::holds_alternative<std::vector<double>>(value)) return 1;
  const auto* nested = std::get_if<Nested>(&value);
  if (!nested || nested->kind == Nested::Kind::kNull) return 0;
  std::size_t deepest = 0;
  for (const NestedItem& item : nested->items) deepest = std::max(deepest, depth_of(item.value));
  return deepest + 1;
}

OptionValue list_value(std::vector<OptionValue> items) {
  if (all_of_kind<std::int64_t>(items)) return as_kind<std::int64_t>(items);
  if (all_of_kind<double>(items)) return as_kind<double>(items);
  Nested list{Nested::Kind::kList, {}};
  for (OptionValue& item : items) list.items.push_back({{}, std::move(item)});
  return list;
}

bool is_null(const OptionValue& value) {
  const auto* nested = std::get_if<Nested>(&value);
  return nested && nested->kind == Nested::Kind::kNull;
}

std::string toml_text(const std::string& v) {
  std::string s = "\"";
  for (const char c : v) {
    if (c == '"' || c == '\\') s += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      s += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      s += c;
    }
  }
  return s + "\"";
}

std::string to_toml(const OptionValue& value) { return std::visit(TomlWriter{}, value); }

std::string toml_key(const std::string& name) {
  const bool bare = !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == name.npos;
  return bare ? name : toml_text(name);
}

OptionValue without_spelling(OptionValue value) {
  if (auto* text = std::get_if<std::string>(&value); text && spells_none(*text)) {
    if (text->size() == kNone.size() + 1) return Nested{};
    text->erase(0, 1);
  }
  if (auto* nested = std::get_if<Nested>(&value)) {
    for (NestedItem& item : nested->items) item.value = without_spelling(std::move(item.value));
  }
  return value;
}

std::string to_json(const OptionValue& value) { return std::visit(JsonWriter{}, value); }

}  // namespace gipo
