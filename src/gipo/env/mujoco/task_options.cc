#include "gipo/env/mujoco/task_options.h"

#include <cmath>

namespace gipo::task {

EnvOption xml_file(const char* file) {
  return {"xml_file", std::string(file), "Model: a file of Gymnasium's, or a path that begins with . or /."};
}
EnvOption frame_skip(std::int64_t frames) {
  return {"frame_skip", frames, "Steps of the physics for each step of the task.", 1};
}
EnvOption reset_noise(double scale) {
  return {"reset_noise_scale", scale, "Size of the random displacement at the start of an episode.", 0};
}
EnvOption weight(const char* name, double value, const char* help) { return {name, value, help}; }
EnvOption range(const char* name, Range value, const char* help) {
  return {name, std::vector<double>{value.low, value.high}, help};
}
EnvOption flag(const char* name, const char* help) { return {name, true, help}; }

double number(const OptionValues& options, const char* name) { return std::get<double>(options.at(name)); }
bool is_set(const OptionValues& options, const char* name) { return std::get<bool>(options.at(name)); }
Range range_of(const OptionValues& options, const char* name) {
  const auto& ends = std::get<std::vector<double>>(options.at(name));
  return {ends.at(0), ends.at(1)};
}

std::vector<double> same(std::size_t count, double value) { return std::vector<double>(count, value); }

void add_uniform(RandomStream& random, Range range, std::span<double> values) {
  for (double& v : values) v += random.uniform(range.low, range.high);
}
void add_normal(RandomStream& random, double scale, std::span<double> values) {
  for (double& v : values) v += scale * random.normal();
}

double distance(std::span<const double, 3> a, std::span<const double, 3> b) {
  const double x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
  return std::sqrt(x * x + y * y + z * z);
}

}  // namespace gipo::task
