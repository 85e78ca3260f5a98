#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>

#include "gipo/plan/plan.h"
#include "gipo/population/engine.h"

namespace gipo::population {

struct PopulationHooks {
  std::function<double()> seconds;                                     // since some start
  std::function<double()> wall_time;                                   // since 1970, for logs
  const std::atomic<int>* signals = nullptr;                           // above 0: end soon; above 1: and now
  std::function<void(std::size_t run, double fraction)> progress;      // of its updates
  std::function<void(std::size_t run, const std::string& why)> ended;  // why it failed; empty: it did not
  std::function<std::string(std::size_t run)> command;                 // what its folder says it was begun with
};

// Trains all these runs, as many at once as the engine holds, and writes their folders, which must not be there yet. Each
// plan must have passed check_plan. False where it was interrupted: runs that were under way have then no summary, and
// begin anew another time.
bool train_population(Engine& engine, std::span<const Plan* const> plans, const PopulationHooks& hooks);

}  // namespace gipo::population
