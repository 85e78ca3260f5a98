#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "gipo/cli/commands.h"
#include "gipo/cli/study_commands.h"
#include "gipo/cli/table.h"
#include "gipo/core/error.h"
#include "gipo/objective/certificate.h"
#include "gipo/study/run_measure.h"

namespace gipo::cli {
namespace {

using Json = nlohmann::ordered_json;

// What is not given comes from the run, or is the default.
struct Arguments {
  std::string run;
  std::optional<double> sigma, kl, kl_behaviour, kl_step, advantage_bound, discount, gain, alpha, bias, interval;
  std::optional<std::int64_t> samples;
  bool json = false;
};

CertificateInputs inputs(const Arguments& a) {
  CertificateInputs in;
  if (!a.run.empty()) {
    in = measure_run(a.run);
  } else if (!a.sigma && !a.bias && !a.interval) {
    throw Error("certify wants a run folder, or --sigma, or --bias or --interval to find it");
  }
  if (a.sigma) in.sigma_narrow = in.sigma_wide = *a.sigma;
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

Json number(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }

struct Line {
  const char *key, *meaning, *equation;
  double value;
};

std::vector<Line> lines(const Arguments& a, const CertificateInputs& in) {
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
    all.push_back({"greatest_sigma", "greatest sigma that certifies --interval; so does every smaller one", "Eq. (21)",
                   greatest_sigma(*a.interval, in.advantage_bound, in.samples, in.alpha)});
  }
  return all;
}

int certify(const Arguments& a) {
  const CertificateInputs in = inputs(a);
  Json out = Json::object(), equations = Json::object();
  const bool with_sigma = a.sigma || !a.run.empty();
  if (!a.run.empty()) out["run_dir"] = a.run;
  if (with_sigma) out["sigma"] = in.sigma_narrow;
  if (with_sigma && in.sigma_wide != in.sigma_narrow) out["sigma_wide"] = in.sigma_wide;
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
    out[l.key] = number(l.value);
    equations[l.key] = l.equation;
    const std::string value = std::isnan(l.value) ? "none" : fmt::format("{:.8g}", l.value);
    table.push_back({l.key, value, l.equation, l.meaning});
  }
  out["equations"] = equations;
  if (a.json) {
    fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}", as_text(table));
    if (!a.run.empty())
      fmt::print("KL is a mean over samples, not a maximum over states: an estimate of the bounds.\n");
  }
  return kDone;
}

}  // namespace

void add_certify(CLI::App& app, std::function<int()>& chosen) {
  const auto a = std::make_shared<Arguments>();
  constexpr double kMost = 1e12;
  CLI::App* c = app.add_subcommand("certify", "The paper's bounds as numbers, for given figures or a run of GIPO");
  c->add_option("run", a->run, "Run folder to take the figures from; those given beside it win");
  c->add_option("--sigma", a->sigma, "Width of the trust weight")->check(number_in(1e-3, 1e3));
  c->add_option("--kl", a->kl, "delta = max KL(mu, pi')")->check(number_in(0, kMost));
  c->add_option("--kl-behaviour", a->kl_behaviour, "max KL(mu, pi); --kl unless given")->check(number_in(0, kMost));
  c->add_option("--kl-step", a->kl_step, "max KL(pi, pi'); 0 unless given")->check(number_in(0, kMost));
  c->add_option("--advantage-bound", a->advantage_bound, "eps: |A| <= eps; 1 unless given")
      ->check(number_in(1e-12, kMost));
  c->add_option("--discount", a->discount, "0.99 unless given")->check(number_in(0, 0.9999999));
  c->add_option("--gain", a->gain, "Surrogate gain L~(pi') - J(pi); 0 unless given")->check(number_in(-kMost, kMost));
  c->add_option("--samples", a->samples, "N, 256 unless given")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 50));
  c->add_option("--alpha", a->alpha, "The interval holds with probability 1 - alpha; 0.05 unless given")
      ->check(number_in(1e-12, 0.999));
  c->add_option("--bias", a->bias, "Find the least sigma whose bound on E[1 - w] is at most this")
      ->check(number_in(1e-12, kMost));
  c->add_option("--interval", a->interval, "Find the greatest sigma whose interval is at most this")
      ->check(number_in(1e-12, kMost));
  c->add_flag("--json", a->json, "Print one JSON object on stdout");
  c->callback([a, &chosen] { chosen = [a] { return certify(*a); }; });
}

}  // namespace gipo::cli
