#include "gipo/doctor/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "gipo/cli/commands.h"
#include "gipo/core/error.h"
#include "gipo/learner/learner.h"
#include "gipo/policy/torch_policy.h"

namespace gipo::cli {
namespace {

const char* in_words(Health health) {
  if (health == Health::kGood) return "good";
  return health == Health::kNote ? "note" : "damaged";
}

int describe_machine(bool json) {
  const std::vector<std::string> devices = torch_cuda_devices();
  const std::string version = torch_version();
  if (json) {
    const nlohmann::ordered_json out = {
        {"backends", learner_backends()},
        {"libtorch", version.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(version)},
        {"cuda_devices", devices}};
    fmt::print("{}\n", out.dump(2));
    return kDone;
  }
  fmt::print("backends (learner.backend): {}\n", fmt::join(learner_backends(), ", "));
  fmt::print("libtorch: {}\n", version.empty() ? kAddTorch : version);
  fmt::print("devices (learner.device): cpu");
  for (std::size_t i = 0; i < devices.size(); ++i) fmt::print(", cuda:{} ({})", i, devices[i]);
  fmt::print("\n");
  return kDone;
}

}  // namespace

int doctor(const DoctorArguments& a) {
  if (a.machine) return describe_machine(a.json);
  if (a.run.empty()) throw Error("gipo doctor: wanted a run folder, or --machine");
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
