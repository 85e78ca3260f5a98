#include "gipo/config/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "gipo/core/error.h"

namespace gipo {
namespace {

// What an option accepts: a range of numbers, a list of words, or names that a registry knows (checked there).
struct Accepted {
  double low = 0, high = 0;
  bool ranged = false, open_low = false;
  std::vector<std::string> words;
  std::string listed;
};

Accepted any() { return {}; }
Accepted range(double low, double high) { return {low, high, true, false, {}, {}}; }
Accepted above(double low) { return {low, HUGE_VAL, true, true, {}, {}}; }
Accepted one_of(std::vector<std::string> words) { return {0, 0, false, false, std::move(words), {}}; }
Accepted listed(std::string what) { return {0, 0, false, false, {}, std::move(what)}; }

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

template <class T>
struct IsMaybe : std::false_type {};
template <class T>
struct IsMaybe<Maybe<T>> : std::true_type {};

template <class T>
std::string type_in_words() {
  if constexpr (IsMaybe<T>::value) return type_in_words<typename T::value_type>();
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, std::int64_t>) return "integer";
  if constexpr (std::is_same_v<T, double>) return "number";
  if constexpr (std::is_same_v<T, std::string>) return "text";
  return "list of integers";
}

// An option of a run: its text is what it says.
std::string toml(const std::string& v) { return toml_text(v); }
template <class T>
std::string toml(const T& v) {
  return to_toml(v);
}
template <class T>
std::string toml(const Maybe<T>& v) {
  return v ? toml(*v) : "";
}

[[noreturn]] void refuse(const std::string& where, const std::string& key, const std::string& value,
                         const std::string& wanted) {
  throw Error(fmt::format("{}: {} = {} is not accepted: {}", where, key, value, wanted));
}

// The value as T, or nothing when the types do not fit. Whole numbers are accepted where numbers are.
template <class T>
Maybe<T> convert(const OptionValue& value) {
  if constexpr (std::is_same_v<T, double>) {
    if (const auto* i = std::get_if<std::int64_t>(&value)) return static_cast<double>(*i);
  }
  if (const auto* v = std::get_if<T>(&value)) return *v;
  return std::nullopt;
}

void check(const Accepted& a, double v, const std::string& where, const std::string& key, const std::string& shown) {
  if (!std::isfinite(v)) refuse(where, key, shown, "a finite number is wanted");
  if (a.ranged && (v < a.low || v > a.high || (a.open_low && v <= a.low))) {
    refuse(where, key, shown, "wanted " + in_words(a));
  }
}

template <class T>
void check_value(const Accepted& a, const T& v, const std::string& where, const std::string& key) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (!a.words.empty() && std::find(a.words.begin(), a.words.end(), v) == a.words.end()) {
      refuse(where, key, toml(v), "wanted " + in_words(a) + did_you_mean(v, a.words));
    }
  } else if constexpr (std::is_same_v<T, Widths>) {
    for (const std::int64_t w : v) check(a, static_cast<double>(w), where, key, toml(v));
  } else if constexpr (!std::is_same_v<T, bool>) {
    check(a, static_cast<double>(v), where, key, toml(v));
  }
}

template <class T, class Access>
Option make_option(std::string key, const Accepted& accepted, std::string help, Access access) {
  using Plain = typename std::conditional_t<IsMaybe<T>::value, T, Maybe<T>>::value_type;
  Option o;
  o.key = std::move(key);
  o.type = type_in_words<T>();
  Config defaults;
  o.value = toml(access(defaults));
  if (o.value.empty()) o.value = "unset";
  o.accepted = in_words(accepted);
  o.help = std::move(help);
  o.set = [=, key = o.key, type = o.type](Config& config, const OptionValue& value, const std::string& where) {
    const Maybe<Plain> plain = convert<Plain>(value);
    if (!plain) {
      refuse(where, key, to_toml(value),
             "wanted " + type + (in_words(accepted).empty() ? "" : ", " + in_words(accepted)));
    }
    check_value(accepted, *plain, where, key);
    access(config) = *plain;
  };
  o.get = [=](const Config& config) { return toml(access(const_cast<Config&>(config))); };
  return o;
}

std::vector<OptionGroup> build_table() {
  std::vector<OptionGroup> groups;
#define GIPO_GROUP_BEGIN(group, Type, text)            \
  groups.push_back({#group, text, {}});                \
  {                                                    \
    const std::string prefix = #group ".";             \
    std::vector<Option>& rows = groups.back().options; \
    const auto in = [](Config & c) -> Type##Options& { return c.group; };
#define GIPO_OPTION(type, member, initial, accept, text) \
  rows.push_back(make_option<type>(prefix + #member, accept, text, [in](Config& c) -> type& { return in(c).member; }));
#define GIPO_GROUP_END(group, Type) }
#include "gipo/config/options.def"
  return groups;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

const std::vector<OptionGroup>& option_table() {
  static const std::vector<OptionGroup> table = build_table();
  return table;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kLongestWord = 100;  // beyond it nothing is near, and the search takes long
  if (word.size() > kLongestWord) return "";
  const std::string* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 2) + 1;
  for (const std::string& k : known) {
    const std::size_t d = edit_distance(word, k);
    if (d < best_distance) best = &k, best_distance = d;
  }
  return best ? fmt::format(" (did you mean {}?)", *best) : "";
}

std::string origin_of(const Origins& origins, const std::string& key) {
  const auto it = origins.find(key);
  return it == origins.end() ? "default" : it->second;
}

std::string config_to_toml(const Config& config) {
  std::string text;
  for (const OptionGroup& group : option_table()) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", group.name);
    for (const Option& o : group.options) {
      const std::string name = o.key.substr(group.name.size() + 1);
      const std::string value = o.get(config);
      text += value.empty() ? fmt::format("# {} is unset. {}\n", name, o.help)
                            : fmt::format("{} = {}  # {}\n", name, value, o.help);
    }
    if (group.name != "env" || config.env_options.empty()) continue;
    text += "\n[env.options]\n";
    for (const auto& [name, value] : config.env_options)
      text += fmt::format("{} = {}\n", toml_key(name), to_toml(value));
  }
  return text;
}

std::string options_page() {
  std::string page =
      "# Options\n\n"
      "Every option of a run file, made by `gipo list options --markdown` from the table in\n"
      "`src/gipo/config/options.def`. In a TOML file an option stands under its group; on the command line it is\n"
      "`--set group.name=value`. An option that is *unset* by default may be left out; its line says what follows.\n";
  for (const OptionGroup& group : option_table()) {
    page += fmt::format("\n## {}\n\n{}\n\n| option | type | default | accepted | meaning |\n|---|---|---|---|---|\n",
                        group.name, group.help);
    for (const Option& o : group.options) {
      page += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", o.key, o.type, o.value,
                          o.accepted.empty() ? "any" : o.accepted, o.help);
    }
  }
  return page;
}

}  // namespace gipo
