#pragma once

#include <cstddef>
#include <string>

namespace gipo {

struct Plan;

// What a learner and an actor must mean alike, as lines of text: the task, its spaces, the columns of a segment, the
// tensors of the policy. Each side makes them of the run's config with the packages it has.
std::string agreement_of(const Plan& plan);
// The first line that differs, in words; empty: none does.
std::string disagreement(const std::string& learner, const std::string& actor);

// The config as an actor is sent it: without what is each host's own (env.python, env.workers).
std::string config_for_actors(const Plan& plan);

// What an actor without an engine needs to choose actions and to write segments, as JSON. Throws Error where a policy
// cannot be computed there: it must be a multi-layer perceptron of one vector, without advantages made at collection.
std::string edge_description(const Plan& plan);

// Rounds of steps in a report: enough that messages cost little, few enough that one is not large.
std::size_t report_rounds(const Plan& plan);
// No report of so many rounds has more bytes.
std::size_t most_report_bytes(const Plan& plan, std::size_t rounds);

}  // namespace gipo
