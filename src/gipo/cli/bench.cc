#include "gipo/bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "gipo/cli/commands.h"
#include "gipo/core/options.h"
#include "gipo/policy/dense.h"

namespace gipo::cli {
namespace {

void print(const BenchRow& row) {
  fmt::print("{:<36} {:>12.4g} {:<14}", row.name, row.value, row.unit);
  if (!row.reference.empty()) fmt::print(" {:>6.3f} of {}", row.ratio, row.reference);
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace

int bench(const BenchArguments& a) {
  std::vector<std::string> known;
  for (const Bench& b : benches()) known.push_back(b.name);
  int code = kDone;
  // One that is not known is said; the rest goes on.
  for (const std::string& name : a.names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    fmt::print(stderr, "gipo: bench {} is not known{}; known: {}\n", name, did_you_mean(name, known),
               fmt::join(known, ", "));
    code = kUserMistake;
  }
  if (!a.json) fmt::print("# dense kernels: {}\n", dense_kernels<float>().name);
  auto rows = nlohmann::ordered_json::array();
  for (const Bench& b : benches()) {
    if (!a.names.empty() && std::find(a.names.begin(), a.names.end(), b.name) == a.names.end()) continue;
    for (const BenchRow& row : b.run()) {
      if (!a.json) print(row);
      rows.push_back({{"name", row.name}, {"value", row.value}, {"unit", row.unit}});
      rows.back()["reference"] =
          row.reference.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(row.reference);
      rows.back()["ratio"] = row.reference.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(row.ratio);
    }
  }
  if (a.json) fmt::print("{}\n", rows.dump(2));
  return code;
}

}  // namespace gipo::cli
