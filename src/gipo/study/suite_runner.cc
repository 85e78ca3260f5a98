#include "gipo/study/suite_runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/population/population.h"
#include "gipo/population/prepare.h"
#include "gipo/run/run_folder.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;

constexpr int kMostStarts = 10;  // of a run that is killed again and again, as where memory runs out
constexpr auto kPoll = std::chrono::milliseconds(50);
constexpr double kWriteSeconds = 10;  // between writes of results.json, at least
constexpr double kWritePause = 50;    // the same, in times that the last write took

// The last line that a run printed: its own word on why it failed.
std::string last_line(const std::string& path) {
  std::string text = read_file(path);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

bool in_use(const std::string& run_dir) {
  if (!fs::exists(run_dir)) return false;
  try {
    const FileLock lock(run_dir + "/lock", "");
    return false;
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

SuiteRunner::SuiteRunner(const Suite& suite, RunnerOptions options, RunnerHooks hooks)
    : suite_(suite),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      views_(suite.runs.size()),
      results_(suite) {
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const Plan& plan = suite.runs[i].plan;
    if (options_.engine) population::check_plan(plan);
    const RunStanding standing = look_at(suite.runs[i]);
    if (options_.engine && standing.state == RunState::kStarted) {
      throw Error(fmt::format(
          "--device cuda: {} was begun on the processor and has a checkpoint, which a card cannot go on from: run the "
          "suite without --device cuda, remove the folder, or give the suite another --out",
          plan.run_dir));
    }
    if (standing.state == RunState::kFinished || results_.kept(i)) views_[i] = {RunView::State::kDone, 1, "", 0};
    if (standing.state == RunState::kFailed && !options_.retry) {
      views_[i] = {RunView::State::kFailed, 1, standing.why, 0};
    }
  }
}

std::string SuiteRunner::output_path(std::size_t run) const {
  return suite_.out + "/output/" + suite_.runs[run].plan.name + ".txt";
}

bool SuiteRunner::run() {
  make_folder(suite_.out + "/runs");
  make_folder(suite_.out + "/output");
  const FileLock lock(suite_.out + "/lock", "suite folder " + suite_.out);
  const std::string description = suite_.out + "/suite.json";
  write_file_atomic(description, suite_json(suite_, fs::exists(description) ? read_file(description) : ""));
  results_ = SuiteResults(suite_);  // again: a suite that ran here until now may have added rows
  for (std::size_t i = 0; i < views_.size(); ++i) {
    if (views_[i].state != RunView::State::kWaiting) results_.take(i);
    if (views_[i].state == RunView::State::kDone) drop_checkpoints(i);  // of a session that died before it could
  }
  next_write_ = options_.seconds() + kWriteSeconds;
  const bool whole = options_.engine ? run_population() : run_processes();
  write_results();
  return whole;
}

void SuiteRunner::write_results() {
  const double begin = options_.seconds();
  next_write_ = begin + kWriteSeconds;  // where it fails
  write_file_atomic(suite_.out + "/results.json", results_.text());
  unwritten_ = false;
  const double end = options_.seconds();
  next_write_ = end + std::max(kWriteSeconds, kWritePause * (end - begin));
}

void SuiteRunner::write_results_now_and_then() {
  if (!unwritten_ || options_.seconds() < next_write_) return;
  try {
    write_results();
  } catch (const RunError&) {  // a full disk: the runs go on, and the last time it is told
  }
}

bool SuiteRunner::run_processes() {
  const auto jobs = static_cast<std::size_t>(options_.jobs > 0 ? options_.jobs : options_.launcher.room());
  std::vector<Child> children;
  while (true) {
    for (std::size_t i = 0; i < views_.size() && children.size() < jobs; ++i) {
      if (views_[i].state == RunView::State::kWaiting) start(i, children);
    }
    const auto undecided = std::count_if(views_.begin(), views_.end(), [](const RunView& v) {
      return v.state == RunView::State::kWaiting || v.state == RunView::State::kRunning;
    });
    if (undecided == 0) break;
    std::this_thread::sleep_for(kPoll);
    look_after(children);
    hooks_.tick(views_);
    write_results_now_and_then();
    if (hooks_.signals && hooks_.signals->load() > 0) {
      stop(children);
      return false;
    }
  }
  return true;
}

// A run of a card has no checkpoint: one that was interrupted begins anew.
bool SuiteRunner::run_population() {
  std::vector<std::size_t> waiting;
  std::vector<const Plan*> plans;
  for (std::size_t i = 0; i < views_.size(); ++i) {
    if (views_[i].state != RunView::State::kWaiting) continue;
    const std::string& folder = suite_.runs[i].plan.run_dir;
    look_at(suite_.runs[i]).state == RunState::kFailed ? remove_run(folder) : remove_remnants(folder);
    waiting.push_back(i);
    plans.push_back(&suite_.runs[i].plan);
    views_[i].state = RunView::State::kRunning;
  }
  population::PopulationHooks hooks;
  hooks.seconds = options_.seconds;
  hooks.wall_time = options_.wall_time;
  hooks.signals = hooks_.signals;
  hooks.progress = [&](std::size_t i, double fraction) {
    views_[waiting[i]].fraction = fraction;
    hooks_.tick(views_);
    write_results_now_and_then();
  };
  hooks.ended = [&](std::size_t i, const std::string& why) {
    settle(waiting[i], why.empty() ? RunView::State::kDone : RunView::State::kFailed, why);
  };
  hooks.command = [&](std::size_t i) {
    return fmt::format("gipo {}", fmt::join(suite_.runs[waiting[i]].arguments, " "));
  };
  const bool whole = population::train_population(*options_.engine, plans, hooks);
  for (const std::size_t i : waiting) {  // those that ended just before an interruption
    if (views_[i].state != RunView::State::kRunning || look_at(suite_.runs[i]).state != RunState::kFinished) continue;
    settle(i, RunView::State::kDone, "");
  }
  return whole;
}

void SuiteRunner::start(std::size_t i, std::vector<Child>& children) {
  const SuiteRun& run = suite_.runs[i];
  RunView& view = views_[i];
  if (in_use(run.plan.run_dir)) return;  // a process of an earlier session has not quite ended: later
  if (view.starts == kMostStarts) {
    return settle(i, RunView::State::kFailed, fmt::format("killed {} times", kMostStarts));
  }
  try {
    std::vector<std::string> arguments = {"resume", run.plan.run_dir, "--quiet"};
    if (look_at(run).state == RunState::kAbsent) {
      remove_remnants(run.plan.run_dir);
      arguments = run.arguments;
    }
    children.push_back({options_.launcher.start(arguments, output_path(i)), i});
  } catch (const Error& e) {
    return settle(i, RunView::State::kFailed, e.what());
  }
  view.state = RunView::State::kRunning;
  ++view.starts;
}

void SuiteRunner::look_after(std::vector<Child>& children) {
  std::erase_if(children, [&](const Child& c) {
    const std::optional<RunLauncher::End> end = options_.launcher.ended(c.id);
    if (!end) {
      const double updates = static_cast<double>(suite_.runs[c.run].plan.config.learner.updates);
      views_[c.run].fraction = static_cast<double>(updates_done(suite_.runs[c.run].plan.run_dir)) / updates;
      return false;
    }
    this->end(c.run, *end);
    return true;
  });
}

void SuiteRunner::end(std::size_t i, const RunLauncher::End& end) {
  RunStanding standing;
  try {
    standing = look_at(suite_.runs[i]);
  } catch (const Error& e) {
    return settle(i, RunView::State::kFailed, e.what());
  }
  if (standing.state == RunState::kFinished) {
    settle(i, RunView::State::kDone, "");
  } else if (!end.why.empty()) {
    settle(i, RunView::State::kFailed, end.why);
  } else if (!end.code || *end.code == 130) {
    views_[i].state = RunView::State::kWaiting;  // killed or asked to end from outside: taken up again
  } else {
    const std::string said = last_line(output_path(i));
    settle(i, RunView::State::kFailed, fmt::format("exit code {}: {}", *end.code, said.empty() ? standing.why : said));
  }
}

void SuiteRunner::settle(std::size_t i, RunView::State state, std::string why) {
  RunView& view = views_[i];
  view.state = state;
  view.fraction = 1;
  view.why = std::move(why);
  if (state == RunView::State::kDone) drop_checkpoints(i);
  results_.take(i);
  unwritten_ = true;
  hooks_.ended(i, view);
}

void SuiteRunner::drop_checkpoints(std::size_t i) const {
  if (!suite_.keep_checkpoints) fs::remove_all(suite_.runs[i].plan.run_dir + "/" + kCheckpointFolder);
}

void SuiteRunner::stop(std::vector<Child>& children) {
  for (const Child& c : children) options_.launcher.interrupt(c.id);
  while (!children.empty()) {
    if (hooks_.signals->load() > 1) {
      for (const Child& c : children) options_.launcher.kill(c.id);
    }
    std::this_thread::sleep_for(kPoll);
    look_after(children);
  }
}

}  // namespace gipo
