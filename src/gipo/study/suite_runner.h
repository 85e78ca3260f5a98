#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "gipo/population/engine.h"
#include "gipo/study/run_launcher.h"
#include "gipo/study/suite_results.h"

namespace gipo {

// A run as the runner sees it.
struct RunView {
  enum class State { kWaiting, kRunning, kDone, kFailed } state = State::kWaiting;
  double fraction = 0;  // of its updates
  std::string why;      // of a failure
  int starts = 0;       // in this session
};

struct RunnerOptions {
  RunLauncher& launcher;
  int jobs = 0;                                          // runs at a time; 0: as many as the launcher has room for
  bool retry = false;                                    // failed runs of an earlier session too
  population::Engine* engine = nullptr;                  // not null: what trains all runs, in this process
  std::function<double()> seconds = {}, wall_time = {};  // since some start; since 1970, for an engine alone
};

struct RunnerHooks {
  const std::atomic<int>* signals = nullptr;                   // 1: runs are asked to save and end; 2: they are killed
  std::function<void(const std::vector<RunView>&)> tick;       // a few times a second
  std::function<void(std::size_t run, const RunView&)> ended;  // done or failed
};

// Runs a suite, each run a process of its own or all of them as one population, until none is left. The suite's folder is
// locked against a second runner; a run's folder is locked by the run. Runs die with this process, however that ends
// (RunLauncher), and whoever starts the suite again goes on from their folders; of those that are gone, results.json
// says which runs had finished. A killed run is taken up again, a failed one reported. Used by one thread.
class SuiteRunner {
 public:
  // Looks at every run folder and at results.json first: a mistake is found before anything is started or removed.
  SuiteRunner(const Suite& suite, RunnerOptions options, RunnerHooks hooks);

  // False where it was interrupted.
  bool run();
  const std::vector<RunView>& views() const { return views_; }
  const SuiteResults& results() const { return results_; }

 private:
  struct Child {
    pid_t id;
    std::size_t run;
  };

  bool run_processes();
  bool run_population();
  void start(std::size_t run, std::vector<Child>& children);
  void look_after(std::vector<Child>& children);
  void end(std::size_t run, const RunLauncher::End& end);
  void settle(std::size_t run, RunView::State state, std::string why);
  void drop_checkpoints(std::size_t run) const;
  void write_results();
  void write_results_now_and_then();
  void stop(std::vector<Child>& children);
  std::string output_path(std::size_t run) const;

  const Suite& suite_;
  const RunnerOptions options_;
  const RunnerHooks hooks_;
  std::vector<RunView> views_;  // [runs]
  SuiteResults results_;
  bool unwritten_ = false;  // rows of results.json
  double next_write_ = 0;   // of those, in options_.seconds
};

}  // namespace gipo
