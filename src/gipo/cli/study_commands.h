#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace gipo::cli {

// The commands around runs rather than in one: each, once parsed, puts what is to be done into `chosen`.
void add_aggregate(CLI::App& app, std::function<int()>& chosen);
void add_study(CLI::App& app, std::function<int()>& chosen);
void add_multipliers(CLI::App& study, std::function<int()>& chosen);  // under `study`
void add_certify(CLI::App& app, std::function<int()>& chosen);
void add_suite(CLI::App& app, std::function<int()>& chosen);
void add_export(CLI::App& app, std::function<int()>& chosen);
void add_report(CLI::App& app, std::function<int()>& chosen);

// A number from low to high. Unlike CLI::Range it refuses NaN.
CLI::Validator number_in(double low, double high);

}  // namespace gipo::cli
