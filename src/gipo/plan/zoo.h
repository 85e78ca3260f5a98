#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gipo {

// A preset of configs/zoo: settings that solve one task, and what they were measured at. The figures stand in the comment
// of the file, as JSON after "# zoo: ".
struct ZooEntry {
  struct Measured {
    double mean = 0, worst = 0;  // greedy returns: over the seeds, and of the worst seed
    std::int64_t seeds = 0;
    std::optional<double> cpu_seconds;  // of one run and its workers; none: not noted
  };
  struct Published {
    double mean = 0;
    std::int64_t env_steps = 0;
  };

  std::string task, about;
  std::string needs;  // option of scripts/setup.sh that installs the task; empty: none
  std::int64_t env_steps = 0;
  std::optional<double> goal;        // greedy return that counts as solved; none: nobody says
  std::optional<Measured> measured;  // none: not run
  std::optional<Published> rl_zoo;   // PPO of RL Baselines3 Zoo; none: it lists no such task

  std::string preset() const { return "zoo/" + task; }
};

// By name of the task.
std::vector<ZooEntry> zoo();
// The same as a JSON array; null for what there is not.
std::string zoo_as_json();

// The name of the preset for a task. Throws Error, which names all tasks, where there is none.
std::string zoo_preset(const std::string& task);

}  // namespace gipo
