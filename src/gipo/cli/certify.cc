#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "gipo/cli/commands.h"
#include "gipo/cli/table.h"
#include "gipo/core/error.h"
#include "gipo/objective/certificate.h"
#include "gipo/study/run_measure.h"

namespace gipo::cli {
namespace {

using Json = nlohmann::ordered_json;

CertificateInputs inputs(const CertifyArguments& a) {
  CertificateInputs in;
  if (!a.run.empty()) {
    in = measure_run(a.run);
  } else if (!a.sigma && !a.bias && !a.interval) {
    throw Error("certify wants a run folder, or --sigma, or --bias or --interval to find it");
  }
  if (a.sigma) in.sigma_narrow = in.sigma_wide = *a.sigma;
  if (a.importance_max) in.importance_max = *a.importance_max;
  if (a.kl) in.kl = in.kl_behaviour = *a.kl;
  if (a.kl_behaviour) in.kl_behaviour = *a.kl_behaviour;
  if (a.kl_step) in.kl_step = *a.kl_step;
  if (a.advantage_bound) in.advantage_bound = *a.advantage_bound;
  if (a.discount) in.discount = *a.discount;
  if (a.gain) in.gain = *a.gain;
  if (a.samples) in.samples = *a.samples;
  if (a.alpha) in.alpha = *a.alpha;
  if (in.discount >= 1) throw Error(fmt::format("discount = {}: the bounds want one below 1", in.discount));
  return in;
}

Json number_or_null(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }

struct Line {
  const char *key, *meaning, *equation;
  double value;
};

std::vector<Line> lines(const CertifyArguments& a, const CertificateInputs& in) {
  std::vector<Line> all;
  if (a.sigma || !a.run.empty()) {
    const Certificate c = certify(in);
    all = {{"tau_star", "tau* = W(2 sigma^2), the best truncation", "appendix, tau e^tau = 2 sigma^2", c.tau_star},
           {"lemma1_bound", "bound on E[1 - w]: what the weight takes away", "Eq. (17), Lemma 5.1", c.lemma1_bound},
           {"multiplier_bound", "bound on the multiplier w rho", "Eq. (19), Lemma 5.3", c.multiplier_bound},
           {"shift_penalty", "penalty for the policies' distance", "Eq. (18), Theorem 5.2", c.shift_penalty},
           {"bias_penalty", "penalty for the weight's bias", "Eq. (18), Theorem 5.2", c.bias_penalty},
           {"lower_bound", "J(pi') - J(pi) is at least", "Eq. (18), Theorem 5.2", c.lower_bound},
           {"interval", "half-width of the estimate's interval", "Eq. (21), Theorem 5.4", c.interval},
           {"certified", "lower bound with the gain estimated from the samples", "Eq. (18) and (21)", c.certified}};
  }
  if (a.bias)
    all.push_back({"least_sigma", "least sigma that certifies --bias", "Eq. (17)", least_sigma(*a.bias, in.kl)});
  if (a.interval) {
    all.push_back(
        {"greatest_sigma", "greatest sigma that certifies --interval; so does every smaller one", "Eq. (21)",
         greatest_sigma(*a.interval, in.importance_max.value_or(1) * in.advantage_bound, in.samples, in.alpha)});
  }
  return all;
}

}  // namespace

int certify(const CertifyArguments& a) {
  const CertificateInputs in = inputs(a);
  Json out = Json::object(), equations = Json::object();
  const bool with_sigma = a.sigma || !a.run.empty();
  if (!a.run.empty()) out["run_dir"] = a.run;
  if (with_sigma) out["sigma"] = in.sigma_narrow;
  if (with_sigma && in.sigma_wide != in.sigma_narrow) out["sigma_wide"] = in.sigma_wide;
  if (in.importance_max) out["importance_max"] = *in.importance_max;
  out.update(Json{{"kl", in.kl},
                  {"kl_behaviour", in.kl_behaviour},
                  {"kl_step", in.kl_step},
                  {"advantage_bound", in.advantage_bound},
                  {"discount", in.discount},
                  {"gain", in.gain},
                  {"samples", in.samples},
                  {"alpha", in.alpha}});
  Table table;
  for (const auto& [name, value] : out.items()) table.push_back({name, value.dump(), "", "given or measured"});
  for (const Line& l : lines(a, in)) {
    out[l.key] = number_or_null(l.value);
    equations[l.key] = l.equation;
    const std::string value = std::isnan(l.value) ? "none" : fmt::format("{:.8g}", l.value);
    table.push_back({l.key, value, l.equation, l.meaning});
  }
  out["equations"] = equations;
  if (a.json) {
    fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}", as_text(table));
    if (in.importance_max) {
      fmt::print("About pi_prox the multiplier is bounded as shown; of its bias the paper says nothing.\n");
    }
    if (!a.run.empty())
      fmt::print("KL is a mean over samples, not a maximum over states: an estimate of the bounds.\n");
  }
  return kDone;
}

}  // namespace gipo::cli
