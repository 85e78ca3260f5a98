#include "gipo/doctor/doctor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gipo/cli/commands.h"

namespace gipo::cli {
namespace {

const char* in_words(Health health) {
  if (health == Health::kGood) return "good";
  return health == Health::kNote ? "note" : "damaged";
}

}  // namespace

int doctor(const DoctorArguments& a) {
  std::string run = a.run;
  while (run.size() > 1 && run.back() == '/') run.pop_back();
  const Diagnosis diagnosis = examine(run);
  if (a.json) {
    nlohmann::ordered_json findings = nlohmann::ordered_json::array();
    for (const Finding& f : diagnosis.findings) findings.push_back({{"level", in_words(f.health)}, {"text", f.text}});
    const nlohmann::ordered_json out = {
        {"run_dir", run}, {"damaged", diagnosis.damaged()}, {"findings", findings}, {"next", diagnosis.next}};
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    for (const Finding& f : diagnosis.findings) fmt::print("{:<8} {}\n", in_words(f.health), f.text);
    fmt::print("next: {}\n", diagnosis.next);
  }
  return diagnosis.damaged() ? kFailed : kDone;
}

}  // namespace gipo::cli
