#include "gipo/bench/bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "gipo/bench/clock.h"
#include "gipo/cli/commands.h"
#include "gipo/cli/progress.h"
#include "gipo/config/did_you_mean.h"
#include "gipo/kernels/dense.h"

namespace gipo::cli {
namespace {

using Json = nlohmann::ordered_json;

// What is being measured, on stderr: one live line on a terminal, a plain one per measurement elsewhere.
class BenchLine {
 public:
  explicit BenchLine(std::size_t cases) : cases_(cases) {}

  void begin(std::size_t done, const std::string& name) {
    const double seconds = steady_time() - start_;
    const double left =
        seconds * static_cast<double>(cases_ - done) / static_cast<double>(std::max<std::size_t>(done, 1));
    const std::string eta = done == 0 ? "-" : in_time(left);
    fmt::print(stderr, "{}bench {} of {}: {}  ETA {}{}", terminal_ ? "\r" : "", done + 1, cases_, name, eta,
               terminal_ ? "\x1b[K" : "\n");
    std::fflush(stderr);
  }
  void end() {
    if (terminal_) std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
  }

 private:
  const std::size_t cases_;
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  const double start_ = steady_time();
};

void print(const BenchRow& row) {
  fmt::print("{:<36} {:>12.4g} {:<14}", row.name, row.value, row.unit);
  if (!row.reference.empty()) fmt::print(" {:>6.3f} of {}", row.ratio, row.reference);
  fmt::print("\n");
  std::fflush(stdout);
}

Json to_json(const BenchRow& row) {
  const bool alone = row.reference.empty();
  return {{"name", row.name},
          {"value", row.value},
          {"unit", row.unit},
          {"reference", alone ? Json() : Json(row.reference)},
          {"ratio", alone ? Json() : Json(row.ratio)}};
}

// One that is not known is said; the rest goes on.
int say_unknown(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const Bench& b : benches()) known.push_back(b.name);
  int code = kDone;
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    fmt::print(stderr, "gipo: bench {} is not known{}; known: {}\n", name, did_you_mean(name, known),
               fmt::join(known, ", "));
    code = kUserMistake;
  }
  return code;
}

}  // namespace

int bench(const BenchArguments& a) {
  const int code = say_unknown(a.names);
  std::vector<BenchCase> cases;
  for (const Bench& b : benches()) {
    if (a.names.empty() && b.by_name_alone) continue;
    if (!a.names.empty() && std::find(a.names.begin(), a.names.end(), b.name) == a.names.end()) continue;
    for (BenchCase& c : b.cases()) cases.push_back(std::move(c));
  }
  if (!a.json) fmt::print("# dense kernels: {}\n", dense_kernels<float>().name);
  std::fflush(stdout);
  Json rows = Json::array();
  BenchLine line(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    line.begin(i, cases[i].name);
    const std::vector<BenchRow> measured = cases[i].measure();
    line.end();
    for (const BenchRow& row : measured) {
      if (!a.json) print(row);
      rows.push_back(to_json(row));
    }
  }
  if (a.json) fmt::print("{}\n", rows.dump(2));
  return code;
}

}  // namespace gipo::cli
