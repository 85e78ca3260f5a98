#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "gipo/bindings/arrays.h"
#include "gipo/bindings/bindings.h"
#include "gipo/core/error.h"
#include "gipo/stats/bootstrap.h"
#include "gipo/study/grid_study.h"

namespace gipo::bindings {
namespace {

nb::tuple to_tuple(const Estimate& e) { return nb::make_tuple(e.value, e.low, e.high); }

nb::dict aggregates_of(const TaskScores& scores, double target) {
  const Aggregates a = aggregates(scores, target);
  nb::dict out;
  out["iqm"] = a.iqm;
  out["median"] = a.median;
  out["mean"] = a.mean;
  out["optimality_gap"] = a.optimality_gap;
  return out;
}

// Methods in order, each {figure: (value, low, high)}; then every pair x < y with the probability that x beats y.
nb::tuple estimates(const std::vector<TaskScores>& scores, const BootstrapOptions& options) {
  ScoreTable table;
  table.scores = scores;
  table.methods.resize(scores.size());
  Estimates e;
  {
    const nb::gil_scoped_release released;
    e = estimate(table, options);
  }
  nb::list methods, improvements;
  for (const MethodEstimates& m : e.methods) {
    nb::dict one;
    one["iqm"] = to_tuple(m.iqm);
    one["median"] = to_tuple(m.median);
    one["mean"] = to_tuple(m.mean);
    one["optimality_gap"] = to_tuple(m.optimality_gap);
    std::vector<double> profile;
    for (const Estimate& p : m.profile) profile.insert(profile.end(), {p.value, p.low, p.high});
    one["profile"] = to_numpy(std::move(profile), {m.profile.size(), 3});
    methods.append(one);
  }
  for (const Improvement& i : e.improvements) improvements.append(nb::make_tuple(i.x, i.y, to_tuple(i.probability)));
  return nb::make_tuple(methods, improvements);
}

GridStudy study_of(const std::string& behaviour, double discount) {
  return {in_every_state(parse_behaviour(behaviour).probabilities), discount};
}

// The estimator's moments where the action is drawn in one state (0 to 2), or in all where the state is drawn too.
nb::dict grid_moments(const Surrogate& surrogate, const std::string& behaviour, double discount,
                      std::optional<std::size_t> state) {
  const GridStudy study = study_of(behaviour, discount);
  GradientMoments g = state ? study.at_state(surrogate, *state) : study.over_states(surrogate);
  const GradientMoments::Error error = g.error();
  const std::size_t n = g.truth.size();
  nb::dict out;
  out["bias"] = error.bias;
  out["variance"] = error.variance;
  out["mse"] = error.mse();
  out["truth"] = to_numpy(std::move(g.truth));
  out["expectation"] = to_numpy(std::move(g.expectation));
  out["covariance"] = to_numpy(std::move(g.covariance), {n, n});
  return out;
}

// The parameters of least mse in a family, with its error.
nb::dict grid_optimum(const std::string& family, const std::string& behaviour, double discount, bool whole) {
  using Search = Optimum (*)(const GridStudy&, StudyFigure);
  const std::map<std::string, Search> searches = {
      {"gipo", best_gipo}, {"gipo_pair", best_gipo_pair}, {"ppo", best_ppo}, {"sapo", best_sapo}};
  const auto search = searches.find(family);
  if (search == searches.end()) {
    throw Error("family = " + family + " is not accepted: wanted gipo, gipo_pair, ppo or sapo");
  }
  const Optimum best =
      search->second(study_of(behaviour, discount), whole ? StudyFigure::kWhole : StudyFigure::kRightAtS0);
  nb::dict out, parameters;
  for (const auto& [name, value] : best.method.parameters) parameters[name.c_str()] = value;
  out["parameters"] = parameters;
  out["bias"] = best.error.bias;
  out["variance"] = best.error.variance;
  out["mse"] = best.error.mse();
  return out;
}

}  // namespace

void add_studies(nb::module_& m) {
  m.def("aggregates", &aggregates_of, nb::arg("scores"), nb::arg("target"), "Aggregates of scores[task][run].");
  m.def("probability_of_improvement", &probability_of_improvement, nb::arg("x"), nb::arg("y"),
        "How likely a run of x beats one of y, over tasks.");
  m.def(
      "estimates",
      [](const std::vector<TaskScores>& scores, std::int64_t repetitions, std::int64_t profile_repetitions,
         double confidence, double target, std::uint64_t seed, const std::vector<double>& taus) {
        return estimates(scores, {repetitions, profile_repetitions, confidence, target, seed, taus});
      },
      nb::arg("scores"), nb::arg("repetitions"), nb::arg("profile_repetitions"), nb::arg("confidence"),
      nb::arg("target"), nb::arg("seed"), nb::arg("taus"), "Values with intervals of scores[method][task][run].");
  m.def(
      "grid_behaviour",
      [](const std::string& text) {
        const Behaviour b = parse_behaviour(text);
        return std::tuple(b.name, b.mixture, b.probabilities);
      },
      nb::arg("text"), "Name, mixture and action probabilities of a collecting policy.");
  m.def("grid_moments", &grid_moments, nb::arg("surrogate"), nb::arg("behaviour"), nb::arg("discount"),
        nb::arg("state").none(), "Exact moments of the gradient estimate.");
  m.def("grid_optimum", &grid_optimum, nb::arg("family"), nb::arg("behaviour"), nb::arg("discount"), nb::arg("whole"),
        "The estimator of least mse in a family.");
}

}  // namespace gipo::bindings
