#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gipo/cli/commands.h"
#include "gipo/cli/python.h"
#include "gipo/cli/table.h"
#include "gipo/study/grid_study.h"

namespace gipo::cli {
namespace {

using Json = nlohmann::ordered_json;

// One figure of the study. `state` and `component` are "all" for the whole.
struct Row {
  const Behaviour* behaviour;
  const StudyMethod* method;
  std::string state, component;
  GradientMoments::Error error;
  Json truth, expectation, covariance;
};

std::vector<StudyMethod> chosen_methods(const GridworldArguments& a) {
  std::vector<StudyMethod> methods(1);
  methods[0].options.name = "no_clip";
  for (const auto& [name, list] : {std::pair{"ppo", a.ppo}, {"sapo", a.sapo}, {"gipo", a.gipo}}) {
    for (StudyMethod& m : parse_methods(name, list)) methods.push_back(std::move(m));
  }
  for (StudyMethod& m : methods) {
    if (a.prox) m.options.centre = Centre::kProximal;
    m.options.importance_max = a.importance_max;
    m.options.pull_back = read_word<PullBack>(a.pull_back).value();
  }
  return methods;
}

Json matrix(const std::vector<double>& values, std::size_t n) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < n; ++i) {
    rows.push_back(std::vector<double>(values.begin() + static_cast<std::ptrdiff_t>(i * n),
                                       values.begin() + static_cast<std::ptrdiff_t>((i + 1) * n)));
  }
  return rows;
}

std::vector<Row> rows_of(const Behaviour& b, const StudyMethod& m, const GridworldArguments& a) {
  const GridStudy study(in_every_state(b.probabilities), a.discount, a.prox.value_or(0));
  const Surrogate surrogate(m.options);
  std::vector<Row> rows;
  const auto whole = [&](const std::string& state, const GradientMoments& g) {
    rows.push_back({&b, &m, state, "all", g.error(), g.truth, g.expectation, matrix(g.covariance, g.truth.size())});
  };
  for (std::size_t s = 0; s < kGridStates; ++s) {
    const GradientMoments g = study.at_state(surrogate, s);
    const std::string state = fmt::format("S{}", s);
    rows.push_back({&b, &m, state, "right", g.error(kGridRight), g.truth[kGridRight], g.expectation[kGridRight],
                    g.error(kGridRight).variance});
    whole(state, g);
  }
  whole("all", study.over_states(surrogate));
  return rows;
}

std::string label(const StudyMethod& m) {
  std::string text = m.options.name;
  for (std::size_t i = 0; i < m.parameters.size(); ++i) {
    text += fmt::format("{}{:.6g}", i == 0 ? " " : ":", m.parameters[i].second);
  }
  return text;
}

Json parameters(const StudyMethod& m) {
  Json p = Json::object();
  for (const auto& [name, value] : m.parameters) p[name] = value;
  return p;
}

Json policy_json(double discount) {
  const GridPolicy pi = grid_target();
  Json values = Json::object(), advantages = Json::object();
  for (std::size_t s = 0; s < kGridStates; ++s) {
    const std::string state = fmt::format("S{}", s);
    values[state] = grid_values(pi, discount)[s];
    for (std::size_t a = 0; a < kGridActions; ++a) {
      advantages[state][kGridActionNames[a]] = grid_advantages(pi, discount)[s][a];
    }
  }
  return {{"values", values}, {"advantages", advantages}, {"visits", grid_visits(pi, discount)}};
}

Json study_json(const GridworldArguments& a, const std::vector<Behaviour>& behaviours, const std::vector<Row>& rows) {
  Json mixtures = Json::array(), out_rows = Json::array();
  for (const Behaviour& b : behaviours) {
    mixtures.push_back({{"name", b.name}, {"mixture", b.mixture}, {"probabilities", b.probabilities}});
  }
  for (const Row& r : rows) {
    out_rows.push_back({{"behaviour", r.behaviour->name},
                        {"surrogate", r.method->options.name},
                        {"parameters", parameters(*r.method)},
                        {"state", r.state},
                        {"component", r.component},
                        {"bias", r.error.bias},
                        {"variance", r.error.variance},
                        {"mse", r.error.mse()},
                        {"truth", r.truth},
                        {"expectation", r.expectation},
                        {"covariance", r.covariance}});
  }
  Json out = {{"discount", a.discount}, {"policy", policy_json(a.discount)}, {"behaviours", mixtures}};
  out["prox"] = a.prox ? Json(*a.prox) : Json(nullptr);
  if (a.prox) out["importance_max"] = a.importance_max;
  out["pull_back"] = a.pull_back;
  out["rows"] = out_rows;
  return out;
}

Table study_csv(const std::vector<Row>& rows, double discount) {
  Table table = {{"behaviour", "surrogate", "parameters", "discount", "state", "component", "bias", "variance", "mse"}};
  for (const Row& r : rows) {
    const std::string name = label(*r.method), surrogate = r.method->options.name;
    table.push_back({r.behaviour->name, surrogate, name.substr(std::min(name.size(), surrogate.size() + 1)),
                     fmt::format("{}", discount), r.state, r.component, fmt::format("{}", r.error.bias),
                     fmt::format("{}", r.error.variance), fmt::format("{}", r.error.mse())});
  }
  return table;
}

void print_text(const GridworldArguments& a, const std::vector<Behaviour>& behaviours, const std::vector<Row>& rows) {
  fmt::print("2x2 grid, discount {}; values of pi: {:.6f}\n", a.discount,
             fmt::join(grid_values(grid_target(), a.discount), ", "));
  if (a.prox) {
    fmt::print("Ratios about mu^{:.6g} pi^{:.6g}; importance weights up to {:.6g}\n", 1 - *a.prox, *a.prox,
               a.importance_max);
  }
  for (const Behaviour& b : behaviours) {
    Table table = {{fmt::format("{} = {}", b.name, b.mixture), "S0 right: bias", "variance", "mse", "all: bias",
                    "variance", "mse"}};
    for (const Row& r : rows) {
      if (r.behaviour != &b) continue;
      const bool scalar = r.state == "S0" && r.component == "right";
      if (scalar) table.push_back({label(*r.method)});
      if (!scalar && r.state != "all") continue;
      for (const double v : {r.error.bias, r.error.variance, r.error.mse()}) {
        table.back().push_back(fmt::format("{:.6f}", v));
      }
    }
    fmt::print("\n{}", as_text(table));
  }
}

// The best of each family for one behaviour and figure.
struct Best {
  const char* key;
  Optimum optimum;
};

std::vector<Best> best_of_each(const GridStudy& study, StudyFigure figure) {
  return {{"gipo", best_gipo(study, figure)},
          {"gipo_pair", best_gipo_pair(study, figure)},
          {"ppo", best_ppo(study, figure)},
          {"sapo", best_sapo(study, figure)}};
}

int optimal(const GridworldArguments& a, const std::vector<Behaviour>& behaviours) {
  Json out = Json::array();
  Table table = {{"behaviour, figure", "method of least mse", "bias", "variance", "mse", "GIPO's mse over it"}};
  for (const Behaviour& b : behaviours) {
    const GridStudy study(in_every_state(b.probabilities), a.discount);
    for (const StudyFigure figure : {StudyFigure::kRightAtS0, StudyFigure::kWhole}) {
      const bool scalar = figure == StudyFigure::kRightAtS0;
      Json row = {{"behaviour", b.name}, {"state", scalar ? "S0" : "all"}, {"component", scalar ? "right" : "all"}};
      const std::vector<Best> best = best_of_each(study, figure);
      const double gipo = best.front().optimum.error.mse();
      for (const auto& [key, o] : best) {
        const double mse = o.error.mse();
        row[key] = {{"parameters", parameters(o.method)},
                    {"bias", o.error.bias},
                    {"variance", o.error.variance},
                    {"mse", mse},
                    {"gipo_mse_over_it", gipo / mse}};
        table.push_back({fmt::format("{}, {}", b.name, scalar ? "S0 right" : "all"), label(o.method),
                         fmt::format("{:.6f}", o.error.bias), fmt::format("{:.6f}", o.error.variance),
                         fmt::format("{:.6f}", mse), fmt::format("{:.4f}", gipo / mse)});
      }
      out.push_back(row);
    }
  }
  if (a.json) {
    fmt::print("{}\n", Json{{"discount", a.discount}, {"rows", out}}.dump(2));
  } else {
    fmt::print("{}", a.csv ? as_csv(table) : as_text(table));
  }
  return kDone;
}

}  // namespace

int gridworld(const GridworldArguments& a) {
  std::vector<Behaviour> behaviours;
  for (const std::string& text : a.behaviours) behaviours.push_back(parse_behaviour(text));
  if (a.optimal) return optimal(a, behaviours);
  const std::vector<StudyMethod> methods = chosen_methods(a);
  std::vector<Row> rows;
  for (const Behaviour& b : behaviours) {
    for (const StudyMethod& m : methods) {
      for (Row& r : rows_of(b, m, a)) rows.push_back(std::move(r));
    }
  }
  const auto json = [&] {
    return study_json(a, behaviours, rows).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  };
  if (!a.figure.empty()) {
    if (const int code = run_python("gipo.study", {a.figure}, json()); code != 0) return code;
  }
  if (a.json) {
    fmt::print("{}", json());
  } else if (a.csv) {
    fmt::print("{}", as_csv(study_csv(rows, a.discount)));
  } else {
    print_text(a, behaviours, rows);
  }
  return kDone;
}

}  // namespace gipo::cli
