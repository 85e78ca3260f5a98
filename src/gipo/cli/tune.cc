#include "gipo/study/tune.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "gipo/cli/commands.h"
#include "gipo/cli/launcher.h"
#include "gipo/cli/progress.h"
#include "gipo/cli/session.h"
#include "gipo/cli/suite_view.h"
#include "gipo/cli/table.h"
#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/study/suite_runner.h"

namespace gipo::cli {
namespace {

using Json = nlohmann::ordered_json;
using State = RunView::State;

// What the rounds of a session share.
struct Session {
  const TuneArguments& arguments;
  const Tuning& tuning;
  Trainers trainers;
  Tuner tuner;
  std::map<std::string, std::string> failed = {};  // runs, with why

  SuiteRunner runner(const Suite& suite, SuiteView& view) const {
    return SuiteRunner(suite, trainers.options(arguments.jobs, arguments.retry), view.hooks());
  }

  void take(const Suite& round, const SuiteRunner& runner) {
    std::size_t next = 0;  // take asks for the runs in their order
    tuner.take(round, [&](const SuiteRun& run) -> std::optional<double> {
      const std::size_t i = next++;
      const RunView& view = runner.views()[i];
      if (view.state == State::kFailed) {
        failed[run.plan.name] = view.why;
        return std::nullopt;
      }
      const std::optional<double> score =
          run_score(runner.results().returns(i), round.tasks[run.task], tuning.runs.tune->score);
      if (!score) failed[run.plan.name] = "no episode ended";
      return score;
    });
  }
};

// Rounds that were run before are taken from their folders; of those to come the number of runs is known.
int dry_run(Session session) {
  const Suite& all = session.tuning.runs;
  const TuneArguments& a = session.arguments;
  const int jobs = runs_at_a_time(a.jobs);
  Tuner& tuner = session.tuner;
  // Runs of one task and regime take much the same time, whatever the candidate: one of each is measured.
  std::map<std::pair<std::size_t, std::size_t>, double> seconds;
  double of_each = 0, left = 0, total = 0;  // of_each: one candidate with one seed, everywhere
  for (const SuiteRun& run : all.runs) {
    const std::pair key(run.task, run.regime);
    if (seconds.contains(key)) continue;
    of_each += seconds[key] = estimate_seconds(run.plan);
  }
  const std::vector<std::size_t> candidates = tuner.candidates_of_rounds();
  Json rows = Json::array();
  Table table = {{"round", "seeds", "candidates", "runs", "left", "about"}};
  bool known = true;
  for (std::size_t k = 0; k < tuner.rounds().size(); ++k) {
    const std::size_t more = tuner.rounds()[k] - (k > 0 ? tuner.rounds()[k - 1] : 0), each = candidates[k] * more;
    const std::size_t runs = each * all.tasks.size() * all.regimes.size();
    std::size_t waiting = runs;
    double needed = static_cast<double>(each) * of_each;
    total += needed;
    if (known) {
      const Suite round = tuner.round_suite();
      SuiteView view(round, "", true);
      const SuiteRunner runner = session.runner(round, view);
      waiting = 0, needed = 0;
      for (std::size_t i = 0; i < round.runs.size(); ++i) {
        if (runner.views()[i].state != State::kWaiting) continue;
        ++waiting, needed += seconds[{round.runs[i].task, round.runs[i].regime}];
      }
      known = waiting == 0;
      if (known) session.take(round, runner);
    }
    left += needed;
    rows.push_back({{"round", k + 1},
                    {"seeds", tuner.rounds()[k]},
                    {"candidates", candidates[k] * all.regimes.size()},
                    {"runs", runs},
                    {"left", waiting},
                    {"estimated_seconds", needed / jobs}});
    table.push_back({fmt::format("{}", k + 1), fmt::format("{}", tuner.rounds()[k]),
                     fmt::format("{}", candidates[k] * all.regimes.size()), fmt::format("{}", runs),
                     fmt::format("{}", waiting), in_time(needed / jobs)});
  }
  Json tried = Json::array();
  Table methods = {{"method", "candidate", "options"}};
  for (const Candidate& c : session.tuning.candidates) {
    tried.push_back(
        {{"method", session.tuning.methods[c.method]}, {"candidate", c.name}, {"options", settings_text(c.settings)}});
    methods.push_back({session.tuning.methods[c.method], c.name, settings_text(c.settings)});
  }
  if (a.json) {
    const Json out = {{"name", all.name},    {"out", all.out}, {"jobs", jobs}, {"estimated_seconds", left / jobs},
                      {"candidates", tried}, {"rounds", rows}};
    fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}\n{}into {}; with {} at a time about {} on this machine, of {} from the beginning\n",
               as_text(methods), as_text(table), all.out, jobs, in_time(left / jobs), in_time(total / jobs));
  }
  return kDone;
}

void report(const Session& session, const std::string& written) {
  const Suite& all = session.tuning.runs;
  if (session.arguments.json) {
    Json out = Json::parse(session.tuner.json());
    out["out"] = all.out;
    out["chosen_file"] = written;
    fmt::print("{}\n", out.dump(1, ' ', false, Json::error_handler_t::replace));
    return;
  }
  const bool regimes = all.regimes.size() > 1 || !all.regimes[0].empty();
  Table table = {{"method", "candidates", "chosen", "score", "runner-up"}};
  if (regimes) table[0].insert(table[0].begin() + 1, "regime");
  for (const TuneResult& r : session.tuner.results()) {
    table.push_back({r.method, fmt::format("{}", r.candidates), settings_text(r.settings),
                     fmt::format("{:.3f}", r.score), r.runner_up ? fmt::format("{:.3f}", *r.runner_up) : "-"});
    if (regimes) table.back().insert(table.back().begin() + 1, r.regime);
  }
  for (const auto& [name, why] : session.failed) fmt::print("{} failed and counts as the worst: {}\n", name, why);
  fmt::print("{}{}: {}/tune.json has all that was tried; chosen: {}\n", as_text(table), all.name, all.out, written);
}

}  // namespace

int tune(const TuneArguments& a) {
  const Tuning tuning = load_tuning(a.file, a.out, {{}, a.methods, a.regimes, {}});
  const Suite& all = tuning.runs;
  if (a.write && all.tuned.empty()) {
    throw Error(fmt::format("{}: --write: [suite] has no key tuned, the file that is to be written", a.file));
  }
  if (a.write && !(a.methods.empty() && a.regimes.empty())) {
    throw Error("--write: wanted without --method and --regime: the file holds all methods in all regimes");
  }
  Session session{a, tuning, Trainers(a.ray, a.device), Tuner(tuning)};
  {
    SuiteView view(all, "", true);
    session.runner(all, view);  // folders that do not fit are found before anything is started
  }
  if (a.dry_run) return dry_run(std::move(session));
  make_folder(all.out);
  const FileLock lock(all.out + "/tune.lock", "folder of tuning " + all.out);
  SuiteView::listen_for_signals();
  Tuner& tuner = session.tuner;
  while (!tuner.done()) {
    const Suite round = tuner.round_suite();
    SuiteView view(round,
                   fmt::format("{}, round {} of {}, {} candidates of {} methods,", all.name, tuner.round() + 1,
                               tuner.rounds().size(), round.methods.size(), tuning.methods.size()),
                   a.quiet);
    SuiteRunner runner = session.runner(round, view);
    const bool whole = runner.run();
    view.end();
    if (!whole) {
      fmt::print(stderr, "{}: interrupted; the same command goes on\n", all.name);
      return kInterrupted;
    }
    session.take(round, runner);
    write_file_atomic(all.out + "/tune.json", tuner.json());
  }
  std::string written = all.out + "/chosen.toml";
  write_file_atomic(written, tuner.chosen_toml());
  if (a.write) {
    written = all.tuned;
    if (const auto parent = std::filesystem::path(written).parent_path(); !parent.empty()) make_folder(parent.string());
    write_file_atomic(written, tuner.chosen_toml());
  }
  report(session, written);
  return kDone;
}

}  // namespace gipo::cli
