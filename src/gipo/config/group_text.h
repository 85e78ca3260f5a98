#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gipo/config/option.h"

namespace gipo {

// One group on its own, for files that hold no whole config: a line "group.name = value" for each option that is set.
template <class Of>
std::string group_to_text(const Of& options) {
  std::string text;
  for (const Option<Of>& o : group_of<Of>().options) {
    const std::string value = o.get(options);
    if (!value.empty()) text += o.key + " = " + value + "\n";
  }
  return text;
}

// A line of such a text.
struct Setting {
  std::string key, shown, where;
  Maybe<OptionValue> value;  // none where no option takes a value of this kind; `shown` has it
};
std::vector<Setting> read_settings(std::string_view text, const std::string& name);

// The other way; throws Error with `name` and the line.
template <class Of>
Of group_from_text(std::string_view text, const std::string& name) {
  Of options;
  for (const Setting& s : read_settings(text, name)) {
    const Option<Of>& o = find_option<Of>({&group_of<Of>(), 1}, s.key, s.where);
    if (!s.value) refuse_kind(o, s.shown, s.where);
    o.set(options, *s.value, s.where);
  }
  return options;
}

}  // namespace gipo
