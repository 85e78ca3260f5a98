#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "gipo/config/accepted.h"
#include "gipo/config/option.h"

namespace gipo {

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
  if constexpr (std::is_same_v<T, std::string> || std::is_enum_v<T>) return "text";
  return "list of integers";
}

// An option of a run: its text is what it says.
template <class T>
std::string as_toml(const T& v) {
  if constexpr (IsMaybe<T>::value) {
    return v ? as_toml(*v) : "";
  } else if constexpr (std::is_enum_v<T>) {
    return toml_text(word_of(v));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return toml_text(v);
  } else {
    return to_toml(v);
  }
}

// The value as T; throws Error where it is not accepted. Whole numbers are accepted where numbers are.
template <class T>
T convert(const OptionValue& value, const OptionInfo& info, const Accepted& accepted, const std::string& where) {
  using Written = std::conditional_t<std::is_enum_v<T>, std::string, T>;
  if constexpr (std::is_same_v<T, double>) {
    if (const auto* i = std::get_if<std::int64_t>(&value)) {
      return convert<T>(static_cast<double>(*i), info, accepted, where);
    }
  }
  const auto* v = std::get_if<Written>(&value);
  if (!v) refuse_kind(info, to_toml(value), where);
  if constexpr (std::is_same_v<Written, std::string>) {
    check_word(accepted, *v, where, info.key);
  } else if constexpr (std::is_same_v<T, Widths>) {
    for (const std::int64_t w : *v) check_number(accepted, static_cast<double>(w), where, info.key, as_toml(*v));
  } else if constexpr (!std::is_same_v<T, bool>) {
    check_number(accepted, static_cast<double>(*v), where, info.key, as_toml(*v));
  }
  if constexpr (std::is_enum_v<T>) {
    return read_word<T>(*v).value();
  } else {
    return *v;
  }
}

template <class Of, class T>
void add_option(OptionGroup<Of>& group, const char* name, T Of::*member, Accepted accepted, std::string help) {
  using Plain = typename std::conditional_t<IsMaybe<T>::value, T, Maybe<T>>::value_type;
  if constexpr (std::is_enum_v<Plain>) {
    for (const Word<Plain>& word : kWords<Plain>) accepted.words.emplace_back(word.text);
  }
  OptionInfo info{group.name + "." + name, type_in_words<T>(), as_toml(Of{}.*member), in_words(accepted),
                  std::move(help)};
  if (info.value.empty()) info.value = "unset";
  group.options.push_back({info,
                           [member, info, accepted](Of& of, const OptionValue& value, const std::string& where) {
                             of.*member = convert<Plain>(value, info, accepted, where);
                           },
                           [member](const Of& of) { return as_toml(of.*member); }});
}

}  // namespace gipo
