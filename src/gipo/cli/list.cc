#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gipo/cli/commands.h"
#include "gipo/core/error.h"
#include "gipo/core/options.h"
#include "gipo/env/env.h"
#include "gipo/objective/surrogate.h"

namespace gipo::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string in_words(const ActionSpace& a) {
  if (a.kind == ActionSpace::Kind::kBox) {
    return fmt::format("{} continuous in [{}, {}]", a.dims(), a.low.front(), a.high.front());
  }
  return fmt::format("choices {}", fmt::join(a.choices, " x "));
}

void list_envs(bool json) {
  Json rows = Json::array();
  for (const EnvSpec& e : registered_envs()) {
    rows.push_back({{"id", e.id},
                    {"observation_size", e.observation_size},
                    {"action", in_words(e.action)},
                    {"time_limit", e.time_limit},
                    {"summary", e.summary}});
    if (!json) {
      fmt::print("{:<26} observation {:<3} action {:<28} limit {:<5} {}\n", e.id, e.observation_size,
                 in_words(e.action), e.time_limit, e.summary);
    }
  }
  if (json) fmt::print("{}\n", rows.dump(2));
}

void list_surrogates(bool json) {
  Json rows = Json::array();
  for (const SurrogateInfo& s : registered_surrogates()) {
    rows.push_back({{"name", s.name}, {"options", s.options}, {"summary", s.summary}});
    if (!json) fmt::print("{:<10} {}\n{:<10} options: {}\n", s.name, s.summary, "", fmt::join(s.options, ", "));
  }
  if (json) fmt::print("{}\n", rows.dump(2));
}

void list_options(bool json) {
  Json rows = Json::array();
  for (const OptionGroup& g : option_table()) {
    if (!json) fmt::print("\n[{}] {}\n", g.name, g.help);
    for (const Option& o : g.options) {
      rows.push_back(
          {{"key", o.key}, {"type", o.type}, {"default", o.value}, {"accepted", o.accepted}, {"help", o.help}});
      if (json) continue;
      fmt::print("  {:<32} {}\n  {:<32} {}{}; default {}\n", o.key, o.help, "", o.type,
                 o.accepted.empty() ? "" : ", " + o.accepted, o.value);
    }
  }
  if (json) fmt::print("{}\n", rows.dump(2));
}

}  // namespace

int list(const ListArguments& a) {
  if (a.markdown && a.what != "options") throw Error("--markdown goes with `gipo list options`");
  if (a.what == "envs") list_envs(a.json);
  if (a.what == "surrogates") list_surrogates(a.json);
  if (a.what == "options" && a.markdown) fmt::print("{}", options_page());
  if (a.what == "options" && !a.markdown) list_options(a.json);
  return kDone;
}

}  // namespace gipo::cli
