#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "gipo/bindings/arrays.h"
#include "gipo/bindings/bindings.h"
#include "gipo/core/error.h"
#include "gipo/objective/advantage.h"
#include "gipo/objective/certificate.h"
#include "gipo/objective/diagnostics.h"
#include "gipo/objective/surrogate.h"
#include "gipo/plan/config_file.h"
#include "gipo/study/run_measure.h"

namespace gipo::bindings {
namespace {

Surrogate make_surrogate(const std::string& name, const OptionValues& options) {
  const std::string where = "gipo.surrogate";
  LoadedConfig loaded;
  set_option(loaded, "surrogate.name", name, where);
  const Surrogate by_name(loaded.config.surrogate);  // throws where the name is unknown
  for (const SurrogateInfo& info : registered_surrogates()) {
    if (info.name != name) continue;
    for (const auto& [key, value] : options) {
      set_option(loaded, "surrogate." + key, value, where);
      if (std::find(info.options.begin(), info.options.end(), key) != info.options.end()) continue;
      throw Error(fmt::format("{}: {} does not read {}; its options: {}", where, name, key,
                              info.options.empty() ? "none" : fmt::to_string(fmt::join(info.options, ", "))));
    }
  }
  return Surrogate(loaded.config.surrogate);
}

// All arrays have one shape.
template <class T>
std::pair<OwnedArray<T>, OwnedArray<T>> evaluate(const Surrogate& surrogate, const Array<T>& log_ratio,
                                                 const Array<T>& advantage, const Array<T>& age) {
  std::vector<T> multiplier(log_ratio.size()), loss(log_ratio.size());
  surrogate.evaluate(view(log_ratio), view(advantage), std::span<T>(multiplier), std::span<T>(loss), view(age));
  return {to_numpy(std::move(multiplier), shape_of(log_ratio)), to_numpy(std::move(loss), shape_of(log_ratio))};
}

// Rows of segments: reward [B, T], value [B, T+1], terminated [B]; f(segment, row, advantage, target) fills a row.
template <class T, class F>
std::pair<OwnedArray<T>, OwnedArray<T>> over_segments(const Array<T>& reward, const Array<T>& value,
                                                      const Array<bool>& terminated, F&& f) {
  const std::size_t rows = reward.shape(0), steps = reward.shape(1);
  std::vector<T> advantage(rows * steps), target(rows * steps);
  for (std::size_t r = 0; r < rows; ++r) {
    const SegmentView<T> segment = {view(reward).subspan(r * steps, steps),
                                    view(value).subspan(r * (steps + 1), steps + 1), terminated.data()[r]};
    f(segment, r, std::span<T>(advantage).subspan(r * steps, steps), std::span<T>(target).subspan(r * steps, steps));
  }
  return {to_numpy(std::move(advantage), {rows, steps}), to_numpy(std::move(target), {rows, steps})};
}

template <class T>
void add_arrays(nb::module_& m, nb::class_<Surrogate>& surrogate) {
  const auto array = [](const char* name) { return nb::arg(name).noconvert(); };
  surrogate.def("evaluate", &evaluate<T>, array("log_ratio"), array("advantage"), array("age"),
                "Multiplier and loss of every sample; all arrays of one shape.");
  m.def(
      "gae",
      [](const Array<T>& reward, const Array<T>& value, const Array<bool>& terminated, double gamma, double lambda) {
        return over_segments<T>(reward, value, terminated, [&](const auto& segment, std::size_t, auto a, auto target) {
          gae<T>(segment, static_cast<T>(gamma), static_cast<T>(lambda), a, target);
        });
      },
      array("reward"), array("value"), array("terminated"), nb::arg("gamma"), nb::arg("lam"),
      "Advantages and targets [B, T] by generalised advantage estimation.");
  m.def(
      "vtrace",
      [](const Array<T>& reward, const Array<T>& value, const Array<bool>& terminated, const Array<T>& log_ratio,
         double gamma, double lambda, double rho_bar, double c_bar) {
        const std::size_t steps = reward.shape(1);
        return over_segments<T>(
            reward, value, terminated, [&](const auto& segment, std::size_t r, auto a, auto target) {
              vtrace<T>(segment, view(log_ratio).subspan(r * steps, steps), {gamma, lambda, rho_bar, c_bar}, a, target);
            });
      },
      array("reward"), array("value"), array("terminated"), array("log_ratio"), nb::arg("gamma"), nb::arg("lam"),
      nb::arg("rho_bar"), nb::arg("c_bar"), "Advantages and targets [B, T] by V-trace.");
  m.def(
      "normalise",
      [](const Array<T>& values) {
        std::vector<T> scaled(view(values).begin(), view(values).end());
        normalise<T>(scaled);
        return to_numpy(std::move(scaled), shape_of(values));
      },
      array("values"), "The values at mean 0 and deviation 1.");
}

OwnedArray<std::uint32_t> table_of(const AgeHistogram& histogram) {
  std::vector<std::uint32_t> counts;
  for (const auto& row : histogram) counts.insert(counts.end(), row.begin(), row.end());
  return to_numpy(std::move(counts), {histogram.size(), histogram[0].size()});
}

nb::dict diagnose(const Array<float>& log_ratio, const Array<float>& advantage, const Array<float>& multiplier,
                  const Array<std::int64_t>& gap, const Array<double>& age, std::int64_t t_old, double window,
                  double epsilon, bool clips_to_zero) {
  DiagnosticsInput in;
  in.log_ratio = view(log_ratio);
  in.advantage = view(advantage);
  in.multiplier = view(multiplier);
  in.gap = view(gap);
  in.age = view(age);
  in.dims = log_ratio.shape(1);
  in.t_old = t_old;
  in.window = window;
  in.epsilon = epsilon;
  in.clips_to_zero = clips_to_zero;
  Diagnostics diagnostics;
  nb::dict figures;
  for (const auto& [name, value] : diagnostics.compute(in)) figures[name.c_str()] = value;
  figures["contribution_by_age"] = table_of(diagnostics.contribution_by_age());
  figures["log_ratio_by_age"] = table_of(diagnostics.log_ratio_by_age());
  for (const auto& [name, values] : diagnostics.profiles()) {
    figures[name] = to_numpy(std::vector<double>(values.begin(), values.end()), {values.size()});
  }
  return figures;
}

// What `given` does not name comes from the run where there is one, else is the default.
nb::dict certificate(const std::optional<std::string>& run, const std::map<std::string, double>& given) {
  CertificateInputs in = run ? measure_run(*run) : CertificateInputs{};
  const auto set = [&](const char* key, double& member) {
    if (const auto it = given.find(key); it != given.end()) member = it->second;
  };
  set("sigma", in.sigma_narrow);
  set("sigma", in.sigma_wide);
  if (const auto it = given.find("importance_max"); it != given.end()) in.importance_max = it->second;
  set("kl", in.kl);
  set("kl", in.kl_behaviour);
  set("kl_behaviour", in.kl_behaviour);
  set("kl_step", in.kl_step);
  set("advantage_bound", in.advantage_bound);
  set("discount", in.discount);
  set("gain", in.gain);
  set("alpha", in.alpha);
  if (const auto it = given.find("samples"); it != given.end()) in.samples = static_cast<std::int64_t>(it->second);
  if (in.discount >= 1) throw Error(fmt::format("discount = {}: the bounds want one below 1", in.discount));

  const Certificate c = certify(in);
  nb::dict out;
  out["sigma"] = in.sigma_narrow;
  if (in.sigma_wide != in.sigma_narrow) out["sigma_wide"] = in.sigma_wide;
  const std::pair<const char*, double> values[] = {{"kl", in.kl},
                                                   {"kl_behaviour", in.kl_behaviour},
                                                   {"kl_step", in.kl_step},
                                                   {"advantage_bound", in.advantage_bound},
                                                   {"discount", in.discount},
                                                   {"gain", in.gain},
                                                   {"alpha", in.alpha},
                                                   {"tau_star", c.tau_star},
                                                   {"lemma1_bound", c.lemma1_bound},
                                                   {"multiplier_bound", c.multiplier_bound},
                                                   {"shift_penalty", c.shift_penalty},
                                                   {"bias_penalty", c.bias_penalty},
                                                   {"lower_bound", c.lower_bound},
                                                   {"interval", c.interval},
                                                   {"certified", c.certified}};
  for (const auto& [key, value] : values) out[key] = value;
  if (in.importance_max) out["importance_max"] = *in.importance_max;
  out["samples"] = in.samples;
  return out;
}

}  // namespace

void add_objective(nb::module_& m) {
  nb::class_<Surrogate> surrogate(m, "Surrogate", "A surrogate objective with its options.");
  surrogate
      .def(
          "__init__",
          [](Surrogate* self, const std::string& name, const OptionValues& options) {
            new (self) Surrogate(make_surrogate(name, options));
          },
          nb::arg("name"), nb::arg("options"))
      .def_prop_ro("clips_to_zero", &Surrogate::clips_to_zero,
                   "Whether a multiplier of zero is the objective's doing.");
  add_arrays<float>(m, surrogate);
  add_arrays<double>(m, surrogate);
  m.def(
      "surrogates",
      [] {
        nb::dict all;
        for (const SurrogateInfo& info : registered_surrogates()) {
          all[info.name.c_str()] = nb::make_tuple(info.summary, info.options);
        }
        return all;
      },
      "Summary and options of every surrogate, by name.");
  m.def("diagnostics", &diagnose, nb::arg("log_ratio"), nb::arg("advantage"), nb::arg("multiplier"), nb::arg("gap"),
        nb::arg("age"), nb::arg("t_old"), nb::arg("window"), nb::arg("epsilon"), nb::arg("clips_to_zero"),
        "The figures of metrics.jsonl for samples [N, dims].");
  m.def("certificate", &certificate, nb::arg("run").none(), nb::arg("given"), "The paper's bounds as numbers.");
  m.def("least_sigma", &least_sigma, nb::arg("bias"), nb::arg("kl"), "Eq. (17) solved for sigma.");
  m.def("greatest_sigma", &greatest_sigma, nb::arg("interval"), nb::arg("advantage_bound"), nb::arg("samples"),
        nb::arg("alpha"), "Eq. (21) solved for sigma.");
}

}  // namespace gipo::bindings
