#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "gipo/core/message_of.h"
#include "gipo/io/files.h"
#include "gipo/io/temporary_folder.h"
#include "gipo/study/suite_runner.h"
#include "gipo/train/trainer.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;

// Suites whose runs are one population, on the host twin.
class PopulationSuites : public testing::Test {
 protected:
  Suite suite_into(const std::string& out, const SuiteChoice& choice = {}) const {
    return parse_suite(
        "[suite]\nname = \"s\"\nconfig = \"base.toml\"\nseeds = [1, 2]\n[[task]]\nname = \"CartPole-v1\"\n"
        "[[task]]\nname = \"Pendulum-v1\"\n[[method]]\nname = \"m\"\n[[method]]\nname = \"n\"\nsurrogate.name = "
        "\"ppo\"\n",
        "s.toml", dir_.path(), dir_ / out, choice);
  }
  bool run(const Suite& suite) {
    RunnerHooks hooks;
    hooks.signals = &signals_;
    hooks.tick = [&](const std::vector<RunView>&) { written_ = written_ || fs::exists(suite.out + "/results.json"); };
    hooks.ended = [&](std::size_t, const RunView& view) { done_ += view.state == RunView::State::kDone; };
    const auto seconds = [&] { return time_ += step_; };
    return SuiteRunner(suite, {launcher_, 1, false, engine_.get(), seconds, [] { return 0.0; }}, hooks).run();
  }
  void SetUp() override {
    write_file_atomic(
        dir_ / "base.toml",
        "[policy]\nhidden = [8]\n[learner]\nupdates = 30\nbatch_size = 32\n[replay]\nsegment_length = 16\n"
        "[eval]\nepisodes = 1\n[log]\ntensorboard = false\n");
  }

  const TemporaryFolder dir_;
  LocalLauncher launcher_{"/nowhere"};  // no process is started
  const std::unique_ptr<population::Engine> engine_ = population::make_host_engine();
  std::atomic<int> signals_{0};
  int done_ = 0;
  double time_ = 0, step_ = 0;  // seconds, and how many pass between two looks at the clock
  bool written_ = false;        // results.json, while there were runs left
};

TEST_F(PopulationSuites, EndAsSuitesDoAndGoOnAfterAnInterruption) {
  const Suite whole = suite_into("whole"), cut = suite_into("cut");
  EXPECT_TRUE(run(whole));
  EXPECT_EQ(done_, 8);
  signals_ = 2;
  EXPECT_FALSE(run(cut));
  EXPECT_EQ(done_, 8);
  EXPECT_TRUE(fs::exists(dir_ / "cut/runs/CartPole-v1-m-1/config.toml"));
  EXPECT_TRUE(fs::exists(dir_ / "cut/results.json"));
  signals_ = 0;
  EXPECT_TRUE(run(cut));
  EXPECT_EQ(done_, 16);
  EXPECT_EQ(read_file(dir_ / "cut/results.json"), read_file(dir_ / "whole/results.json"));
  EXPECT_EQ(read_file(dir_ / "cut/runs/Pendulum-v1-n-2/policy.safetensors"),
            read_file(dir_ / "whole/runs/Pendulum-v1-n-2/policy.safetensors"));
  EXPECT_TRUE(run(cut)) << "nothing is left";
  EXPECT_EQ(done_, 16);
  signals_ = 1;
  EXPECT_TRUE(run(suite_into("late"))) << "all updates are made: they are not thrown away";
  EXPECT_EQ(done_, 24);
}

TEST_F(PopulationSuites, WriteTheirResultsNowAndThen) {
  EXPECT_TRUE(run(suite_into("short")));
  EXPECT_FALSE(written_);
  step_ = 11;
  EXPECT_TRUE(run(suite_into("long")));
  EXPECT_TRUE(written_);
  EXPECT_EQ(read_file(dir_ / "long/results.json"), read_file(dir_ / "short/results.json"));
}

TEST_F(PopulationSuites, GoOnFromResultsAlone) {
  const Suite whole = suite_into("whole"), moved = suite_into("moved");
  EXPECT_TRUE(run(suite_into("moved", {{"Pendulum-v1"}, {}, {}, {2}})));
  EXPECT_EQ(done_, 2);
  fs::remove_all(dir_ / "moved/runs");
  EXPECT_TRUE(run(moved));
  EXPECT_EQ(done_, 8);
  EXPECT_FALSE(fs::exists(moved.runs.back().plan.run_dir)) << "it was not run again";
  EXPECT_TRUE(run(whole));
  EXPECT_EQ(read_file(dir_ / "moved/results.json"), read_file(dir_ / "whole/results.json"));
}

TEST_F(PopulationSuites, ARunThatTheProcessorSavedIsNotTouched) {
  const Suite suite = suite_into("out");
  const Plan& plan = suite.runs[0].plan;
  const std::atomic<bool> stop{true};
  TrainerHooks hooks;
  hooks.seconds = [] { return 0.0; };
  hooks.stop = &stop;
  {
    fs::create_directories(dir_ / "out/runs");
    RunFolder folder(plan, "test", [] { return 0.0; });
    EXPECT_EQ(Trainer(plan, folder, hooks).run().ended, "interrupted");
  }
  EXPECT_NE(message_of([&] { run(suite); }).find("was begun on the processor and has a checkpoint"), std::string::npos);
  EXPECT_FALSE(fs::exists(dir_ / "out/suite.json"));
}

}  // namespace
}  // namespace gipo
