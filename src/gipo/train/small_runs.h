#pragma once

#include <optional>
#include <string>

#include "gipo/io/files.h"
#include "gipo/io/temporary_folder.h"
#include "gipo/run/resume.h"
#include "gipo/train/trainer.h"

namespace gipo {

// For tests: runs of a second or less in a folder of their own, by a clock that stands still.
class SmallRuns {
 protected:
  SmallRuns() {
    Config& c = loaded_.config;
    c.run.dir = dir_.path();
    c.env.count = 2;
    c.policy.hidden = {8};
    c.learner.batch_size = 64;
    c.learner.updates = 60;
    c.replay.segment_length = 16;
    c.log.every_updates = 5;
    hooks_.seconds = [] { return 0.0; };
    hooks_.warn = [this](const std::string& text) { warnings_ += text + "\n"; };
  }
  SmallRuns(const SmallRuns&) = delete;  // its hooks know where it is
  SmallRuns& operator=(const SmallRuns&) = delete;
  ~SmallRuns() = default;

  RunSummary run(const std::string& name) {
    loaded_.config.run.name = name;
    const Plan plan = make_plan(loaded_);
    RunFolder folder(plan, "test", [] { return 0.0; });
    return Trainer(plan, folder, hooks_).run();
  }
  RunSummary go_on(const std::string& name, std::optional<std::int64_t> updates = std::nullopt) {
    const ResumePoint point = find_resume_point(dir_ / name, {updates, {}});
    RunFolder folder(
        point.plan, "test", [] { return 0.0; }, point.positions);
    Trainer trainer(point.plan, folder, hooks_);
    trainer.restore(point.checkpoint);
    return trainer.run();
  }
  std::string file(const std::string& run, const std::string& name) const { return read_file(dir_ / run + "/" + name); }

  TemporaryFolder dir_;
  LoadedConfig loaded_;
  TrainerHooks hooks_;
  std::string warnings_;  // of all runs
};

}  // namespace gipo
