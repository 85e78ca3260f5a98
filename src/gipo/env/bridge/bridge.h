#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gipo/env/bridge/slots.h"
#include "gipo/env/env.h"
#include "gipo/env/options.h"

namespace gipo {

class WorkerProcess;

// Whether a task is one of a Python package, simulated by worker processes: gymnasium:ID, python:MODULE:FACTORY,
// envpool:ID, or a robot task with cameras, libero:SUITE/N, metaworld-pixels:TASK, robosuite:TASK.
bool is_bridged(const std::string& id);

// Of one that says nothing of its own: an episode that never ends would never be counted, nor an evaluation of it.
inline constexpr std::int64_t kBridgedTimeLimit = 10'000;

// What a worker is told of the environments that it makes, as JSON.
std::string worker_setup(const EnvOptions& env, const OptionValues& options);
// What an environment of a worker is reset with, where reset was given `root`. 31 bits, as any package takes.
std::int64_t worker_seed(std::uint64_t root, std::uint64_t incarnation = 0);

// Asks a worker, which makes one environment and tries it out: a reset and a step. Throws Error, with the traceback
// where it is the environment's own code that fails. The same question is asked once in a process.
EnvSpec bridged_spec(const EnvOptions& env, const OptionValues& options);

// The workers of environments that step together, which own it jointly:
//
//   begin_step (all) -> action and command into the slot -> first step sends to every worker -> step waits for its own
//
// One byte wakes a worker and one says that it is done, however many environments it has. A worker that dies is
// started again with the next incarnation; its environments report kWorkerDied once and are then reset. Owned by one
// thread; does not wait before an observation or a result is asked for, so that all workers start at once.
class Bridge {
 public:
  Bridge(EnvSpec spec, const EnvOptions& env, const OptionValues& options, const EnvCrowd& crowd);
  ~Bridge();

  const EnvSpec& spec() const { return spec_; }
  bool restarts() const { return crowd_.restart; }

  // The place of environment i.
  struct Place {
    std::size_t worker = 0, slot = 0;
  };
  Place place_of(std::size_t i) const;

  const Slots& slots(std::size_t worker) const;
  std::uint64_t incarnation(std::size_t worker) const;
  std::uint64_t rounds(std::size_t worker) const;   // of commands that it has carried out
  void order(const Place& place, Command command);  // of a worker at rest
  // What the environment's seeds follow from; each incarnation has its own, so that what was played is not played again.
  void seed(const Place& place, std::uint64_t root);
  // Waits for a round under way, and sends none. Where the worker died, a new one is there when this returns and its
  // incarnation is another. Throws Error for an exception of the environment's code, RunError for a worker that keeps
  // dying.
  void settle(std::size_t worker);
  // Sends what was ordered, of all workers, and waits for this one as settle does.
  void exchange(std::size_t worker);
  // Nothing will be asked again: all workers may end.
  void leave();
  const std::string& last_death() const { return last_death_; }

 private:
  struct Worker {
    std::unique_ptr<WorkerProcess> process;
    Slots slots;
    std::vector<std::uint64_t> roots;  // of seeds, [count]
    std::size_t first = 0;             // number of its first environment
    std::uint64_t incarnation = 0;
    std::int64_t deaths = 0;                      // in a row
    std::uint64_t rounds = 0, rounds_before = 0;  // those before it was started
    bool ordered = false, sent = false;           // commands that wait; a round under way
  };
  void start(Worker& worker);
  static void write_seed(Worker& worker, std::size_t slot);
  void replace(Worker& worker);
  bool finish_round(Worker& worker);

  EnvSpec spec_;
  std::string python_;
  std::unique_ptr<const nlohmann::json> setup_;  // what every worker is told first
  EnvCrowd crowd_;
  std::int64_t max_deaths_;
  double step_timeout_;
  std::vector<Worker> workers_;
  std::string last_death_;
};

}  // namespace gipo
