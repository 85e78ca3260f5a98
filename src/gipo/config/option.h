#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gipo/config/declare.h"

namespace gipo {

// What can be said of an option without the struct that holds it.
struct OptionInfo {
  std::string key;       // "surrogate.sigma"
  std::string type;      // "number", "integer", "text", "true or false", "list of integers"
  std::string value;     // the default as TOML, or "unset"
  std::string accepted;  // in words: "0.001 to 1000", "gaussian, laplacian or cauchy"
  std::string help;
};

// One row of a table of options. `Of` holds the value: the struct of a group, or a whole config.
template <class Of>
struct Option : OptionInfo {
  // Sets the option; throws Error naming key, value, what is accepted and where (file and line, or --set).
  std::function<void(Of&, const OptionValue&, const std::string& where)> set;
  // The value as TOML; empty when unset.
  std::function<std::string(const Of&)> get;
};

template <class Of>
struct OptionGroup {
  std::string name, help;
  std::vector<Option<Of>> options;
};

// Throws Error for a key that is none of those known, with the nearest of them.
[[noreturn]] void refuse_key(const std::string& key, const std::vector<std::string>& known, const std::string& where);
// Throws Error for a value that is of no kind an option takes; `shown` is the value.
[[noreturn]] void refuse_kind(const OptionInfo& option, const std::string& shown, const std::string& where);

template <class Of>
const Option<Of>& find_option(std::span<const OptionGroup<Of>> groups, const std::string& key,
                              const std::string& where) {
  std::vector<std::string> known;
  for (const OptionGroup<Of>& group : groups) {
    for (const Option<Of>& o : group.options) {
      if (o.key == key) return o;
      known.push_back(o.key);
    }
  }
  refuse_key(key, known, where);
}

// The table of a group as that of the struct `Whole` that has the group as a member. `group` must live as long.
template <class Whole, class Of>
OptionGroup<Whole> inside(const OptionGroup<Of>& group, Of Whole::*member) {
  OptionGroup<Whole> rows{group.name, group.help, {}};
  for (const Option<Of>& o : group.options) {
    rows.options.push_back({o,
                            [&o, member](Whole& whole, const OptionValue& value, const std::string& where) {
                              o.set(whole.*member, value, where);
                            },
                            [&o, member](const Whole& whole) { return o.get(whole.*member); }});
  }
  return rows;
}

}  // namespace gipo
