#include "gipo/cli/suite_view.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <map>

#include "gipo/bench/clock.h"
#include "gipo/cli/progress.h"
#include "gipo/core/python.h"

namespace gipo::cli {
namespace {

using State = RunView::State;

constexpr double kTerminalSeconds = 0.2, kPlainSeconds = 10;
constexpr int kMostNamed = 16;  // of the runs under way

std::atomic<int> signals{0};
extern "C" void on_suite_signal(int) { signals.fetch_add(1); }

}  // namespace

SuiteView::SuiteView(const Suite& suite, std::string label, bool quiet)
    : suite_(suite), label_(std::move(label)), quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

RunnerHooks SuiteView::hooks() {
  RunnerHooks hooks;
  hooks.signals = &signals;
  hooks.tick = [this](const std::vector<RunView>& runs) { tick(runs); };
  hooks.ended = [this](std::size_t run, const RunView& view) { ended(run, view); };
  return hooks;
}

void SuiteView::listen_for_signals() {
  std::signal(SIGINT, on_suite_signal);
  std::signal(SIGTERM, on_suite_signal);
}

void SuiteView::tick(const std::vector<RunView>& runs) {
  const double done = updates_of(runs), time = steady_time();
  if (start_ < 0) start_ = time, done_before_ = done;
  if (quiet_ || time - shown_ < (terminal_ ? kTerminalSeconds : kPlainSeconds)) return;
  shown_ = time;
  std::map<State, int> count;
  std::string names;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    ++count[runs[i].state];
    if (runs[i].state != State::kRunning || count[State::kRunning] > kMostNamed) continue;
    names += fmt::format(" {} {:.0f}%", suite_.runs[i].plan.name, 100 * runs[i].fraction);
  }
  const double all = total(), left = all - done, made = done - done_before_;
  std::string line =
      fmt::format("{} {:3.0f}%  {} of {} done  {} failed  ETA {}  {} running:{}", label_, 100 * done / all,
                  count[State::kDone], runs.size(), count[State::kFailed],
                  made > 0 ? in_time(left * (time - start_) / made) : "-", count[State::kRunning], names);
  if (terminal_) line.resize(std::min<std::size_t>(line.size(), 160));
  std::fprintf(stderr, terminal_ ? "\r%s\x1b[K" : "%s\n", line.c_str());
  std::fflush(stderr);
  open_ = terminal_;
}

void SuiteView::ended(std::size_t run, const RunView& view) {
  if (quiet_) return;
  end();
  fmt::print(stderr, "{} {}\n", suite_.runs[run].plan.name,
             view.state == State::kDone ? "done" : "FAILED: " + view.why);
}

void SuiteView::end() {
  if (open_) std::fputs("\r\x1b[K", stderr);
  open_ = false;
}

double SuiteView::total() const {
  double sum = 0;
  for (const SuiteRun& r : suite_.runs) sum += static_cast<double>(r.plan.config.learner.updates);
  return sum;
}

double SuiteView::updates_of(const std::vector<RunView>& runs) const {
  double sum = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    sum += runs[i].fraction * static_cast<double>(suite_.runs[i].plan.config.learner.updates);
  }
  return sum;
}

const char* state_in_words(State state) {
  if (state == State::kDone) return "done";
  if (state == State::kFailed) return "failed";
  return state == State::kRunning ? "running" : "waiting";
}

int runs_at_a_time(int jobs) { return jobs > 0 ? jobs : LocalLauncher(own_path()).room(); }

}  // namespace gipo::cli
