#include "gipo/run/resume.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "gipo/bench/clock.h"
#include "gipo/cli/commands.h"
#include "gipo/cli/session.h"
#include "gipo/core/error.h"

namespace gipo::cli {

int resume(const ResumeArguments& a) {
  std::string run = a.run;
  while (run.size() > 1 && run.back() == '/') run.pop_back();
  if (!std::filesystem::is_directory(run)) throw Error(fmt::format("{}: no such run folder", a.run));
  const ResumePoint point = find_resume_point(run, {a.updates, a.env_steps});
  for (const std::string& text : point.passed_over) fmt::print(stderr, "gipo: {}\n", text);
  std::unique_ptr<Demonstrations> demonstrations;
  if (point.plan.clones()) {
    demonstrations = std::make_unique<Demonstrations>(demonstrations_of(point.plan), point.plan.demonstration_use());
  }
  listen_for_signals();
  RunFolder folder(point.plan, a.command_line, wall_time, point.positions);
  if (!a.quiet) fmt::print(stderr, "{}: resumed at update {}\n", point.plan.name, point.checkpoint.update);
  return run_session(point.plan, folder, {&point.checkpoint, {}, demonstrations.get()}, a.json, a.quiet);
}

}  // namespace gipo::cli
