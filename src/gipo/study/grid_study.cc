#include "gipo/study/grid_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "gipo/config/did_you_mean.h"
#include "gipo/core/error.h"
#include "gipo/io/number_text.h"
#include "gipo/plan/config_file.h"

namespace gipo {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

double to_number(const std::string& text, const std::string& where) {
  const std::optional<double> v = decimal_number(text);
  if (!v || !std::isfinite(*v)) throw Error(fmt::format("{}: {} is no number", where, text));
  return *v;
}

ActionProbabilities base_policy(const std::string& name, const std::string& where) {
  if (name == "rand") return softmax({0, 0, 0, 0});
  if (name == "right") return softmax({0, 0, 0, 1});
  if (name == "down") return softmax({0, 1, 0, 0});
  if (name == "pi") return softmax({0, 1, 0, 1});
  throw Error(fmt::format("{}: unknown policy {}{}; known: rand, right, down, pi", where, name,
                          did_you_mean(name, {"rand", "right", "down", "pi"})));
}

Behaviour mixture(const std::string& name, const std::string& parts) {
  const std::string where = fmt::format("--behaviour {}", parts);
  Behaviour b{name, parts, {}};
  double total = 0;
  for (const std::string& part : split(parts, ',')) {
    const std::vector<std::string> words = split(part, ':');
    if (words.size() != 2) {
      throw Error(fmt::format("{}: wanted A, B, C or parts like rand:0.4,right:0.3,down:0.3", where));
    }
    const ActionProbabilities base = base_policy(words[0], where);
    const double weight = to_number(words[1], where);
    if (weight < 0) throw Error(fmt::format("{}: the weight {} is negative", where, words[1]));
    for (std::size_t a = 0; a < kGridActions; ++a) b.probabilities[a] += weight * base[a];
    total += weight;
  }
  if (std::abs(total - 1) > 1e-9) throw Error(fmt::format("{}: the weights sum to {}, not to 1", where, total));
  return b;
}

// Through the option's own row, so that ranges and messages are those of a run.
void set_option(SurrogateOptions& options, const std::string& name, const std::string& text,
                const std::string& surrogate) {
  LoadedConfig loaded;
  loaded.config.surrogate = options;
  try {
    apply_override(loaded, fmt::format("surrogate.{}={}", name, text));
  } catch (const Error& e) {
    throw Error(fmt::format("--{}: {}", surrogate, e.what()));
  }
  options = loaded.config.surrogate;
}

StudyMethod make_method(const std::string& surrogate, std::vector<std::pair<std::string, double>> parameters) {
  StudyMethod m;
  m.options.name = surrogate;
  for (const auto& [name, value] : parameters) set_option(m.options, name, fmt::format("{}", value), surrogate);
  m.parameters = std::move(parameters);
  return m;
}

// The least of f over log-spaced points, refined by golden section between the neighbours of the best.
template <class F>
double minimise(F&& f, double low, double high) {
  constexpr int kPoints = 400;
  const auto at = [&](double i) { return low * std::pow(high / low, i / kPoints); };
  int best = 0;
  double least = HUGE_VAL;
  for (int i = 0; i <= kPoints; ++i) {
    if (const double v = f(at(i)); v < least) least = v, best = i;
  }
  constexpr double kGolden = 0.6180339887498949;
  double a = std::max(0, best - 1), b = std::min(kPoints, best + 1);
  for (int i = 0; i < 60; ++i) {
    const double c = b - kGolden * (b - a), d = a + kGolden * (b - a);
    if (f(at(c)) <= f(at(d))) {
      b = d;
    } else {
      a = c;
    }
  }
  const double inside = at((a + b) / 2);
  return f(inside) < least ? inside : at(best);
}

}  // namespace

std::vector<Behaviour> paper_behaviours() {
  return {mixture("A", "rand:1"), mixture("B", "rand:0.4,right:0.3,down:0.3"),
          mixture("C", "rand:0.2,right:0.4,down:0.4")};
}

Behaviour parse_behaviour(const std::string& text) {
  for (Behaviour& b : paper_behaviours()) {
    if (b.name == text) return b;
  }
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return mixture(text, text);
  return mixture(text.substr(0, equals), text.substr(equals + 1));
}

std::vector<StudyMethod> parse_methods(const std::string& surrogate, const std::string& list) {
  std::vector<StudyMethod> methods;
  for (const std::string& item : split(list, ',')) {
    const std::vector<std::string> words = split(item, ':');
    std::vector<std::string> names = {"epsilon"};
    if (surrogate == "sapo") names = {"tau_pos", "tau_neg"};
    if (surrogate == "gipo")
      names =
          words.size() == 1 ? std::vector<std::string>{"sigma"} : std::vector<std::string>{"sigma_pos", "sigma_neg"};
    if (words.size() != names.size()) {
      throw Error(fmt::format("--{} {}: wanted {}", surrogate, item, fmt::join(names, ":")));
    }
    std::vector<std::pair<std::string, double>> parameters;
    for (std::size_t i = 0; i < names.size(); ++i) {
      parameters.emplace_back(names[i], to_number(words[i], fmt::format("--{} {}", surrogate, item)));
    }
    methods.push_back(make_method(surrogate, std::move(parameters)));
  }
  return methods;
}

GradientMoments::Error study_error(const GridStudy& study, const SurrogateOptions& options, StudyFigure figure) {
  const Surrogate surrogate(options);
  if (figure == StudyFigure::kWhole) return study.over_states(surrogate).error();
  return study.at_state(surrogate, 0).error(kGridRight);
}

namespace {

constexpr double kLow = 1e-3, kHigh = 1e3;  // what surrogate.sigma, tau_pos and tau_neg accept

Optimum optimum(const GridStudy& study, StudyFigure figure, StudyMethod method) {
  const GradientMoments::Error error = study_error(study, method.options, figure);
  return {std::move(method), error};
}

// Two parameters: one after the other, from several starts, until neither helps. The mse is smooth in both.
Optimum best_pair(const GridStudy& study, StudyFigure figure, const std::string& name, const char* pos,
                  const char* neg) {
  SurrogateOptions o;
  o.name = name;
  const auto mse = [&](double p, double n) {
    if (name == "gipo") {
      o.sigma_pos = p, o.sigma_neg = n;
    } else {
      o.tau_pos = p, o.tau_neg = n;
    }
    return study_error(study, o, figure).mse();
  };
  double best_p = 1, best_n = 1;
  for (const double start : {1e-2, 1e-1, 1.0, 1e1, 1e2}) {
    double p = start, n = start, before = HUGE_VAL;
    for (int round = 0; round < 50 && mse(p, n) < before - 1e-15; ++round) {
      before = mse(p, n);
      p = minimise([&](double x) { return mse(x, n); }, kLow, kHigh);
      n = minimise([&](double x) { return mse(p, x); }, kLow, kHigh);
    }
    if (mse(p, n) < mse(best_p, best_n)) best_p = p, best_n = n;
  }
  return optimum(study, figure, make_method(name, {{pos, best_p}, {neg, best_n}}));
}

}  // namespace

Optimum best_gipo(const GridStudy& study, StudyFigure figure) {
  SurrogateOptions o;
  const double sigma = minimise(
      [&](double s) {
        o.sigma = s;
        return study_error(study, o, figure).mse();
      },
      kLow, kHigh);
  return optimum(study, figure, make_method("gipo", {{"sigma", sigma}}));
}

Optimum best_ppo(const GridStudy& study, StudyFigure figure) {
  // The gradient changes only where epsilon passes |rho - 1|: one epsilon between each two of these is enough.
  std::vector<double> edges = {kLow};
  for (std::size_t s = 0; s < kGridStates; ++s) {
    for (std::size_t a = 0; a < kGridActions; ++a) {
      const double edge = std::abs(std::expm1(study.log_ratio(s, a)));
      if (edge > kLow) edges.push_back(edge);
    }
  }
  std::sort(edges.begin(), edges.end());
  edges.push_back(edges.back() + 0.1);
  Optimum best;
  double least = HUGE_VAL;
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
    if (edges[i + 1] - edges[i] < 1e-9) continue;  // the same edge, up to rounding
    Optimum made = optimum(study, figure, make_method("ppo", {{"epsilon", (edges[i] + edges[i + 1]) / 2}}));
    if (made.error.mse() < least) least = made.error.mse(), best = std::move(made);
  }
  return best;
}

Optimum best_gipo_pair(const GridStudy& study, StudyFigure figure) {
  return best_pair(study, figure, "gipo", "sigma_pos", "sigma_neg");
}

Optimum best_sapo(const GridStudy& study, StudyFigure figure) {
  return best_pair(study, figure, "sapo", "tau_pos", "tau_neg");
}

}  // namespace gipo
