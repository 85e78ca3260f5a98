#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gipo/objective/options.h"
#include "gipo/study/gridworld.h"

namespace gipo {

// A policy that collects, the same in every state: a mixture of rand, right and down (the paper's) and of pi.
struct Behaviour {
  std::string name, mixture;  // "B", "rand:0.4,right:0.3,down:0.3"
  ActionProbabilities probabilities{};
};
std::vector<Behaviour> paper_behaviours();  // A, B, C
// "A", "B", "C", or a mixture as above, with a name of its own before it where wanted: "mine=pi:0.9,rand:0.1". Weights
// sum to 1. Throws Error naming the part that is wrong.
Behaviour parse_behaviour(const std::string& text);

// A surrogate with its parameters, as they stand in the output.
struct StudyMethod {
  SurrogateOptions options;
  std::vector<std::pair<std::string, double>> parameters;
};
// Lists as on the command line. no_clip has no parameter; ppo "0.2,0.5"; sapo "2:1,1:2" (tau_pos:tau_neg); gipo
// "0.5,0.5:0.25" (sigma, or sigma_pos:sigma_neg). Throws Error naming the value.
std::vector<StudyMethod> parse_methods(const std::string& surrogate, const std::string& list);

// The estimator with the least mse of a family, by exact evaluation over all that its options accept.
struct Optimum {
  StudyMethod method;
  GradientMoments::Error error;
};
// `mse_of` any figure of the moments: the paper's scalar, or the whole vector.
enum class StudyFigure { kRightAtS0, kWhole };
GradientMoments::Error study_error(const GridStudy& study, const SurrogateOptions& options, StudyFigure figure);
Optimum best_gipo(const GridStudy& study, StudyFigure figure);
Optimum best_gipo_pair(const GridStudy& study, StudyFigure figure);  // as many parameters as SAPO has
Optimum best_ppo(const GridStudy& study, StudyFigure figure);
Optimum best_sapo(const GridStudy& study, StudyFigure figure);

}  // namespace gipo
