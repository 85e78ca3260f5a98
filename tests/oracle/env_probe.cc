// Steps the environments for another program. `env_probe list` prints the known ids; without arguments it answers each
// line of its input with one line, numbers written with %.17g so that no bit is lost:
//
//   create ID [TIME_LIMIT]   -> observation_size time_limit
//   option NAME=VALUE        -> ok                                 for the environments created from now on
//   reset SEED               -> observation... | physics...
//   load PHYSICS...          -> observation... | physics...      the step count goes on
//   step ACTION...           -> observation... | physics... | reward terminated truncated
//
// A line that fails is answered by "error: ...".
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "gipo/core/error.h"
#include "gipo/env/env.h"
#include "gipo/io/bytes.h"
#include "gipo/plan/config_file.h"

namespace {

using gipo::Env;

std::string number(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", x);
  return text;
}

std::vector<double> numbers(std::istringstream& line) {
  std::vector<double> values;
  for (std::string word; line >> word;) {
    char* end = nullptr;
    values.push_back(std::strtod(word.c_str(), &end));
    if (*end != '\0') throw gipo::Error("not a number: " + word);
  }
  return values;
}

std::string state_of(const Env& env) {
  std::vector<double> observation(env.spec().observation_size);
  env.observe(observation);
  std::string text;
  for (const double x : observation) text += number(x) + ' ';
  text += '|';
  gipo::ByteWriter out;
  env.save_physics(out);
  gipo::ByteReader in(out.bytes());
  while (in.left() > 0) text += ' ' + number(in.value<double>());
  return text;
}

std::string answer(std::unique_ptr<Env>& env, gipo::LoadedConfig& config, const std::string& text) {
  std::istringstream line(text);
  std::string command;
  line >> command;
  if (command == "create") {
    std::string id;
    line >> id;
    std::optional<std::int64_t> time_limit;
    if (std::int64_t limit = 0; line >> limit) time_limit = limit;
    env = gipo::make_env(id, time_limit, config.config.env_options);
    return std::to_string(env->spec().observation_size) + ' ' + std::to_string(env->spec().time_limit);
  }
  if (command == "option") {
    std::string assignment;
    std::getline(line >> std::ws, assignment);
    gipo::apply_override(config, std::string(gipo::kEnvOptions) + assignment);
    return "ok";
  }
  if (!env) throw gipo::Error("create an environment first");
  if (command == "reset") {
    std::uint64_t seed = 0;
    if (!(line >> seed)) throw gipo::Error("reset wants a seed");
    env->reset(seed);
    return state_of(*env);
  }
  if (command == "load") {
    gipo::ByteWriter out;
    for (const double x : numbers(line)) out.value(x);
    gipo::ByteReader in(out.bytes());
    env->load_physics(in);
    if (in.left() > 0) throw gipo::Error("more physics than this task has");
    return state_of(*env);
  }
  if (command == "step") {
    const gipo::StepResult r = env->step(numbers(line));
    return state_of(*env) + " | " + number(r.reward) + (r.terminated ? " 1" : " 0") + (r.truncated ? " 1" : " 0");
  }
  throw gipo::Error("unknown command: " + command);
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  if (argc == 2 && std::string(argv[1]) == "list") {
    for (const gipo::EnvSpec& spec : gipo::registered_envs()) std::cout << spec.id << '\n';
    return 0;
  }
  // Answers are flushed only when more input must be waited for, so that a batch of lines costs few system calls.
  std::cin.tie(nullptr);
  std::unique_ptr<Env> env;
  gipo::LoadedConfig config;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << answer(env, config, line) << '\n';
    } catch (const std::exception& e) {
      std::cout << "error: " << e.what() << '\n';
    }
    if (std::cin.rdbuf()->in_avail() <= 0) std::cout.flush();
  }
}
