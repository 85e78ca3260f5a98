#pragma once

#include <memory>

#include "gipo/study/suite_runner.h"

namespace gipo::cli {

// Where the runs of suites and tunings are trained: as processes of this machine, as those of a Ray cluster, which is
// looked for when the first run is to start, or all together on a card.
class Trainers {
 public:
  Trainers(bool ray, const std::string& device);  // "cpu" or "cuda"
  RunnerOptions options(int jobs, bool retry) const;

 private:
  std::unique_ptr<RunLauncher> launcher_;
  std::unique_ptr<population::Engine> card_;
  double start_;
};

}  // namespace gipo::cli
