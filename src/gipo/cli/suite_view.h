#pragma once

#include <string>
#include <vector>

#include "gipo/study/suite_runner.h"

namespace gipo::cli {

// The whole suite on stderr: one line that is refreshed on a terminal, a plain one now and then elsewhere, and a line
// that stays for each run that ended. `suite` must live as long.
class SuiteView {
 public:
  SuiteView(const Suite& suite, std::string label, bool quiet);

  // For a runner, which must not outlive this.
  RunnerHooks hooks();
  // From here on SIGINT and SIGTERM end a suite: the first asks its runs to save, the second kills them.
  static void listen_for_signals();
  void end();

 private:
  void tick(const std::vector<RunView>& runs);
  void ended(std::size_t run, const RunView& view);
  double total() const;
  double updates_of(const std::vector<RunView>& runs) const;

  const Suite& suite_;
  const std::string label_;
  const bool quiet_, terminal_;
  double start_ = -1, done_before_ = 0, shown_ = -1e9;
  bool open_ = false;
};

const char* state_in_words(RunView::State state);
// What --jobs says; 0: as many as there are cores.
int runs_at_a_time(int jobs);

}  // namespace gipo::cli
