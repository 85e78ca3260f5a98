#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "gipo/bench/clock.h"
#include "gipo/cli/commands.h"
#include "gipo/cli/progress.h"
#include "gipo/cli/session.h"
#include "gipo/cli/table.h"
#include "gipo/core/python.h"
#include "gipo/io/files.h"
#include "gipo/study/suite_runner.h"

namespace gipo::cli {
namespace {

using Json = nlohmann::ordered_json;
using State = RunView::State;

constexpr double kTerminalInterval = 0.2, kPlainInterval = 10;  // seconds

std::atomic<int> signals{0};
extern "C" void on_suite_signal(int) { signals.fetch_add(1); }

// The whole suite on stderr: one line that is refreshed on a terminal, a plain one now and then elsewhere, and a line
// that stays for each run that ended.
class View {
 public:
  View(const Suite& suite, bool quiet) : suite_(suite), quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

  void tick(const std::vector<RunView>& runs) {
    const double done = updates_of(runs), time = steady_time();
    if (start_ < 0) start_ = time, done_before_ = done;
    if (quiet_ || time - shown_ < (terminal_ ? kTerminalInterval : kPlainInterval)) return;
    shown_ = time;
    std::map<State, int> count;
    std::string names;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      ++count[runs[i].state];
      if (runs[i].state != State::kRunning) continue;
      names += fmt::format(" {} {:.0f}%", suite_.runs[i].plan.name, 100 * runs[i].fraction);
    }
    const double all = total(), left = all - done, made = done - done_before_;
    std::string line =
        fmt::format("{} {:3.0f}%  {} of {} done  {} failed  ETA {}  {} running:{}", suite_.name, 100 * done / all,
                    count[State::kDone], runs.size(), count[State::kFailed],
                    made > 0 ? in_time(left * (time - start_) / made) : "-", count[State::kRunning], names);
    if (terminal_) line.resize(std::min<std::size_t>(line.size(), 160));
    std::fprintf(stderr, terminal_ ? "\r%s\x1b[K" : "%s\n", line.c_str());
    std::fflush(stderr);
    open_ = terminal_;
  }

  void ended(std::size_t run, const RunView& view) {
    if (quiet_) return;
    end();
    fmt::print(stderr, "{} {}\n", suite_.runs[run].plan.name,
               view.state == State::kDone ? "done" : "FAILED: " + view.why);
  }

  void end() {
    if (open_) std::fputs("\r\x1b[K", stderr);
    open_ = false;
  }

 private:
  double total() const {
    double sum = 0;
    for (const SuiteRun& r : suite_.runs) sum += static_cast<double>(r.plan.config.learner.updates);
    return sum;
  }
  double updates_of(const std::vector<RunView>& runs) const {
    double sum = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      sum += runs[i].fraction * static_cast<double>(suite_.runs[i].plan.config.learner.updates);
    }
    return sum;
  }

  const Suite& suite_;
  const bool quiet_, terminal_;
  double start_ = -1, done_before_ = 0, shown_ = -1e9;
  bool open_ = false;
};

const char* in_words(State state) {
  if (state == State::kDone) return "done";
  if (state == State::kFailed) return "failed";
  return state == State::kRunning ? "running" : "waiting";
}

int dry_run(const Suite& suite, const std::vector<RunView>& views, const SuiteArguments& a) {
  // Runs of one task and regime take much the same time, whatever the method: one of each is measured.
  std::map<std::pair<std::size_t, std::size_t>, double> seconds;
  double total = 0, left = 0;
  Json rows = Json::array();
  Table table = {{"run", "state", "updates", "env steps", "about"}};
  for (std::size_t i = 0; i < suite.runs.size(); ++i) {
    const SuiteRun& r = suite.runs[i];
    const std::pair key(r.task, r.regime);
    if (!seconds.contains(key)) seconds[key] = estimate_seconds(r.plan);
    total += seconds[key];
    if (views[i].state == State::kWaiting) left += seconds[key];
    rows.push_back({{"name", r.plan.name},
                    {"state", in_words(views[i].state)},
                    {"updates", r.plan.config.learner.updates},
                    {"env_steps", r.plan.total_env_steps()},
                    {"estimated_seconds", seconds[key]}});
    table.push_back({r.plan.name, in_words(views[i].state), fmt::format("{}", r.plan.config.learner.updates),
                     fmt::format("{}", r.plan.total_env_steps()), in_time(seconds[key])});
  }
  if (a.json) {
    const Json out = {{"name", suite.name},
                      {"out", suite.out},
                      {"jobs", a.jobs},
                      {"estimated_seconds", left / a.jobs},
                      {"rows", rows}};
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("{}{} runs into {}; with {} at a time about {} on this machine, of {} from the beginning\n",
               as_text(table), suite.runs.size(), suite.out, a.jobs, in_time(left / a.jobs), in_time(total / a.jobs));
  }
  return kDone;
}

int report(const Suite& suite, const std::vector<RunView>& views, bool json) {
  int done = 0, failed = 0;
  for (const RunView& v : views) done += v.state == State::kDone, failed += v.state == State::kFailed;
  if (json) {
    Json rows = Json::parse(results_json(suite));
    for (std::size_t i = 0; i < views.size(); ++i) {
      rows[i]["state"] = in_words(views[i].state);
      rows[i]["run_dir"] = suite.runs[i].plan.run_dir;
      if (!views[i].why.empty()) rows[i]["why"] = views[i].why;
    }
    const Json out = {{"name", suite.name}, {"out", suite.out}, {"done", done}, {"failed", failed}, {"rows", rows}};
    fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (views[i].state == State::kFailed) fmt::print("{} failed: {}\n", suite.runs[i].plan.name, views[i].why);
    }
    fmt::print("{}: {} of {} runs done, {} failed; {}/results.json; next: gipo report {}\n", suite.name, done,
               views.size(), failed, suite.out, suite.out);
  }
  return failed > 0 ? kFailed : kDone;
}

}  // namespace

int suite(const SuiteArguments& given) {
  SuiteArguments a = given;
  if (a.jobs == 0) a.jobs = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const Suite suite = load_suite(a.file, a.out, {a.tasks, a.methods, a.regimes, a.seeds});
  View view(suite, a.quiet || a.dry_run);
  RunnerHooks hooks;
  hooks.signals = &signals;
  hooks.tick = [&](const std::vector<RunView>& runs) { view.tick(runs); };
  hooks.ended = [&](std::size_t run, const RunView& v) { view.ended(run, v); };
  SuiteRunner runner(suite, {own_path(), a.jobs, a.retry}, hooks);
  if (a.dry_run) return dry_run(suite, runner.views(), a);
  std::signal(SIGINT, on_suite_signal);
  std::signal(SIGTERM, on_suite_signal);
  const bool whole = runner.run();
  view.end();
  if (!whole) {
    fmt::print(stderr, "{}: interrupted; the same command goes on\n", suite.name);
    return kInterrupted;
  }
  return report(suite, runner.views(), a.json);
}

}  // namespace gipo::cli
