#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "gipo/cli/commands.h"
#include "gipo/cli/launcher.h"
#include "gipo/cli/progress.h"
#include "gipo/cli/session.h"
#include "gipo/cli/suite_view.h"
#include "gipo/cli/table.h"
#include "gipo/study/suite_runner.h"

namespace gipo::cli {
namespace {

using Json = nlohmann::ordered_json;
using State = RunView::State;

int dry_run(const Suite& suite, const std::vector<RunView>& views, const SuiteArguments& a) {
  const int jobs = runs_at_a_time(a.jobs);
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
                    {"state", state_in_words(views[i].state)},
                    {"updates", r.plan.config.learner.updates},
                    {"env_steps", r.plan.total_env_steps()},
                    {"estimated_seconds", seconds[key]}});
    table.push_back({r.plan.name, state_in_words(views[i].state), fmt::format("{}", r.plan.config.learner.updates),
                     fmt::format("{}", r.plan.total_env_steps()), in_time(seconds[key])});
  }
  if (a.json) {
    const Json out = {
        {"name", suite.name}, {"out", suite.out}, {"jobs", jobs}, {"estimated_seconds", left / jobs}, {"rows", rows}};
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("{}{} runs into {}; with {} at a time about {} on this machine, of {} from the beginning\n",
               as_text(table), suite.runs.size(), suite.out, jobs, in_time(left / jobs), in_time(total / jobs));
  }
  return kDone;
}

int report(const Suite& suite, const SuiteRunner& runner, bool json) {
  const std::vector<RunView>& views = runner.views();
  int done = 0, failed = 0;
  for (const RunView& v : views) done += v.state == State::kDone, failed += v.state == State::kFailed;
  if (json) {
    Json rows = Json::array();
    for (std::size_t i = 0; i < views.size(); ++i) {
      rows.push_back(Json::parse(runner.results().row(i)));
      rows[i]["state"] = state_in_words(views[i].state);
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

int suite(const SuiteArguments& a) {
  const Suite suite = load_suite(a.file, a.out, {a.tasks, a.methods, a.regimes, a.seeds});
  SuiteView view(suite, suite.name, a.quiet || a.dry_run);
  const Trainers trainers(a.ray, a.device);
  SuiteRunner runner(suite, trainers.options(a.jobs, a.retry), view.hooks());
  if (a.dry_run) return dry_run(suite, runner.views(), a);
  SuiteView::listen_for_signals();
  const bool whole = runner.run();
  view.end();
  if (!whole) {
    fmt::print(stderr, "{}: interrupted; the same command goes on\n", suite.name);
    return kInterrupted;
  }
  return report(suite, runner, a.json);
}

}  // namespace gipo::cli
