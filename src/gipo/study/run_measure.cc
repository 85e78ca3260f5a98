#include "gipo/study/run_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/io/json_text.h"
#include "gipo/plan/config_file.h"

namespace gipo {
namespace {

using Json = nlohmann::json;

// Nothing where it is not JSON.
Json parsed(const std::string& text) {
  try {
    return parse_json<Json>(text, "");
  } catch (const Error&) {
    return nullptr;
  }
}

void check_version(const std::string& path) {
  if (!std::filesystem::exists(path)) return;  // written when a run ends
  const Json summary = parsed(read_file(path, JsonLimits().bytes));
  if (!summary.is_object() || summary.value("schema_version", Json()) != 1) {
    throw Error(fmt::format("{}: schema_version 1 is wanted: the run is of another version, or damaged", path));
  }
}

void read_sigma(const SurrogateOptions& s, const std::string& where, CertificateInputs& in) {
  if (s.name != "gipo" || s.kernel != TrustKernel::kGaussian) {
    throw Error(
        fmt::format("{}: surrogate.name = {}, surrogate.kernel = {}: the bounds are those of gipo with the "
                    "gaussian kernel",
                    where, s.name, word_of(s.kernel)));
  }
  if (s.sigma_growth > 0) {
    throw Error(fmt::format("{}: surrogate.sigma_growth = {}: the bounds are those of one width for all ages", where,
                            s.sigma_growth));
  }
  if (s.centre == Centre::kProximal) in.importance_max = s.importance_max;
  const double pos = s.sigma_pos.value_or(s.sigma), neg = s.sigma_neg.value_or(s.sigma);
  in.sigma_narrow = std::min(pos, neg);
  in.sigma_wide = std::max(pos, neg);
}

}  // namespace

CertificateInputs measure_run(const std::string& run_dir) {
  if (!std::filesystem::is_directory(run_dir)) throw Error(fmt::format("{}: no such run folder", run_dir));
  check_version(run_dir + "/summary.json");
  const std::string config_path = run_dir + "/config.toml", path = run_dir + "/metrics.jsonl";
  const Config config = load_config(config_path).config;
  CertificateInputs in;
  read_sigma(config.surrogate, config_path, in);
  in.discount = config.advantage.gamma;
  in.samples = config.learner.batch_size;
  in.advantage_bound = 0;

  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    Json record = parsed(line);
    if (record.is_object() && record.contains("env_steps") && record["env_steps"].is_number()) {
      lines.push_back(std::move(record));  // a last line still being written is left out
    }
  }
  if (lines.empty()) throw Error(fmt::format("{}: no measurements there yet", path));
  const double last = lines.back()["env_steps"].get<double>();
  const auto largest = [&](const char* key, double& value) {
    for (const Json& line : lines) {
      if (line["env_steps"].get<double>() < 0.8 * last || !line.contains(key) || !line[key].is_number()) continue;
      value = std::max(value, line[key].get<double>());
    }
  };
  largest("kl", in.kl_behaviour);
  in.kl = in.kl_behaviour;  // before the update pi' is pi
  largest("advantage_abs_max", in.advantage_bound);
  if (!(in.advantage_bound > 0)) {
    throw Error(
        fmt::format("{}: no advantage_abs_max above 0: the run is of an earlier version; give the numbers on "
                    "the command line instead",
                    path));
  }
  return in;
}

}  // namespace gipo
