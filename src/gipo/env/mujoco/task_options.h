#pragma once

#include <span>
#include <string>
#include <vector>

#include "gipo/core/random.h"
#include "gipo/env/env_options.h"

namespace gipo {

struct Range {
  double low = 0, high = 0;

  bool inside(double x) const { return low < x && x < high; }  // false for NaN
};

// What the files of the MuJoCo tasks say in one word.
namespace task {

// Options: declared in a task's spec, read in its constructor.
EnvOption xml_file(const char* file);
EnvOption frame_skip(std::int64_t frames);
EnvOption reset_noise(double scale);
EnvOption weight(const char* name, double value, const char* help);
EnvOption range(const char* name, Range value, const char* help);
EnvOption flag(const char* name, const char* help);  // true by default
double number(const OptionValues& options, const char* name);
bool is_set(const OptionValues& options, const char* name);
Range range_of(const OptionValues& options, const char* name);

std::vector<double> same(std::size_t count, double value);
void add_uniform(RandomStream& random, Range range, std::span<double> values);
void add_normal(RandomStream& random, double scale, std::span<double> values);
double distance(std::span<const double, 3> a, std::span<const double, 3> b);

}  // namespace task
}  // namespace gipo
