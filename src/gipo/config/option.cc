#include "gipo/config/option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gipo/config/did_you_mean.h"
#include "gipo/core/error.h"

namespace gipo {

void refuse_key(const std::string& key, const std::vector<std::string>& known, const std::string& where) {
  std::vector<std::string> homeless;
  for (const std::string& k : known) {
    if (k.ends_with("." + key)) homeless.push_back(k);
  }
  // A name without its group is nearer to what was meant than any other key.
  const std::string nearest =
      homeless.empty() ? did_you_mean(key, known) : fmt::format(" (did you mean {}?)", fmt::join(homeless, " or "));
  throw Error(fmt::format("{}: unknown option {}{}; `gipo list options` shows all", where, key, nearest));
}

void refuse_kind(const OptionInfo& option, const std::string& shown, const std::string& where) {
  throw Error(fmt::format("{}: {} = {} is not accepted: wanted {}{}{}", where, option.key, shown, option.type,
                          option.accepted.empty() ? "" : ", ", option.accepted));
}

}  // namespace gipo
