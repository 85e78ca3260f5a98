#include "gipo/run/resume.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "gipo/bench/clock.h"
#include "gipo/cli/commands.h"
#include "gipo/cli/ranks.h"
#include "gipo/cli/session.h"
#include "gipo/core/error.h"

namespace gipo::cli {

int resume(const ResumeArguments& a) {
  const std::optional<RankPlace> place = rank_place();
  if (place && place->rank > 0) return serve(*place);
  std::string run = a.run;
  while (run.size() > 1 && run.back() == '/') run.pop_back();
  if (!std::filesystem::is_directory(run)) throw Error(fmt::format("{}: no such run folder", a.run));
  const ResumePoint point = find_resume_point(run, {a.updates, a.env_steps});
  for (const std::string& text : point.passed_over) fmt::print(stderr, "gipo: {}\n", text);
  const std::int64_t wanted = point.plan.config.learner.ranks;
  if (place) refuse_other_ranks(*place, wanted, run + "/config.toml");
  if (wanted > 1 && !place) {
    return launch_ranks(point.plan.config.learner, point.plan.run_dir, [](Words words) { return words; });
  }
  const std::shared_ptr<RankGroup> ranks = place ? join_ranks(*place) : nullptr;
  std::unique_ptr<Demonstrations> demonstrations;
  if (point.plan.clones()) {
    demonstrations = std::make_unique<Demonstrations>(demonstrations_of(point.plan), point.plan.demonstration_use());
  }
  listen_for_signals();
  RunFolder folder(point.plan, a.command_line, wall_time, point.positions);
  if (!a.quiet) fmt::print(stderr, "{}: resumed at update {}\n", point.plan.name, point.checkpoint.update);
  return run_session(point.plan, folder, {&point.checkpoint, {}, demonstrations.get(), ranks}, a.json, a.quiet);
}

}  // namespace gipo::cli
