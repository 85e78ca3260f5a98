#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "gipo/cli/commands.h"
#include "gipo/cli/table.h"
#include "gipo/objective/surrogate.h"
#include "gipo/plan/config_file.h"

namespace gipo::cli {
namespace {

using Json = nlohmann::ordered_json;

// "gipo,sigma=0.5,pull_back=both"
SurrogateOptions parse_surrogate(const std::string& text) {
  LoadedConfig loaded;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    apply_override(loaded, begin == 0 ? "surrogate.name=" + word : "surrogate." + word);
    begin = end + 1;
  }
  return loaded.config.surrogate;
}

}  // namespace

int multipliers(const MultipliersArguments& a) {
  constexpr int kPoints = 241;
  std::vector<double> log_ratio(kPoints), positive(kPoints, 1), negative(kPoints, -1), m(kPoints), loss(kPoints);
  for (int i = 0; i < kPoints; ++i) log_ratio[static_cast<std::size_t>(i)] = a.most * (2.0 * i / (kPoints - 1) - 1);
  Json rows = Json::array();
  Table table = {{"surrogate", "sign of A", "log_ratio", "multiplier"}};
  for (const std::string& text : a.surrogates) {
    const Surrogate surrogate(parse_surrogate(text));
    for (const auto& [sign, advantage] : {std::pair{"positive", &positive}, {"negative", &negative}}) {
      surrogate.evaluate(std::span<const double>(log_ratio), std::span<const double>(*advantage), std::span<double>(m),
                         std::span<double>(loss));
      rows.push_back({{"surrogate", text}, {"advantage", sign}, {"multiplier", m}});
      for (std::size_t i = 0; i < m.size(); ++i) {
        table.push_back({text, sign, fmt::format("{}", log_ratio[i]), fmt::format("{}", m[i])});
      }
    }
  }
  if (a.json) {
    fmt::print("{}\n", Json{{"log_ratio", log_ratio}, {"rows", rows}}.dump(2));
  } else {
    fmt::print("{}", as_csv(table));
  }
  return kDone;
}

}  // namespace gipo::cli
