#pragma once

#include <string>
#include <vector>

namespace gipo {

enum class Health {
  kGood,
  kNote,     // worth knowing; nothing is lost
  kDamaged,  // something is lost, or must be mended before the run can go on
};

struct Finding {
  Health health = Health::kGood;
  std::string text;
};

struct Diagnosis {
  std::vector<Finding> findings;
  std::string next;  // what to do, in one line

  bool damaged() const;
};

// Checks a run folder: config, checkpoints, logs, policy, summary. Reads alone; safe while a run is at work in it.
// Throws Error where the path is not a run folder.
Diagnosis examine(const std::string& run_dir);

}  // namespace gipo
