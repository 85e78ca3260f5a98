#include "gipo/run/run_folder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gipo/core/error.h"
#include "gipo/io/temporary_folder.h"
#include "gipo/plan/option_table.h"

namespace gipo {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

class RunFolders : public ::testing::Test {
 protected:
  RunFolders() {
    LoadedConfig loaded;
    loaded.config.run.dir = top_ / "runs";
    loaded.config.run.name = "one";
    plan_ = make_plan(loaded);
  }

  RunFolder make(const std::string& command = "gipo train") {
    return RunFolder(plan_, command, [] { return 1.7e9; });
  }
  std::vector<Json> lines(const std::string& file) {
    std::vector<Json> all;
    std::istringstream text(read_file(plan_.run_dir + "/" + file));
    for (std::string line; std::getline(text, line);) all.push_back(Json::parse(line));
    return all;
  }

  TemporaryFolder top_;
  Plan plan_;
  Diagnostics diagnostics_;
};

TEST_F(RunFolders, HoldsTheConfigThatReadsBack) {
  const RunFolder folder = make();
  EXPECT_EQ(folder.path(), top_ / "runs/one");
  EXPECT_EQ(config_to_toml(load_config(folder.path() + "/config.toml").config), config_to_toml(plan_.config));
}

TEST_F(RunFolders, ExistingFolderIsRefusedAndLeftAlone) {
  fs::create_directories(plan_.run_dir);
  try {
    make();
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(plan_.run_dir), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("--overwrite"), std::string::npos) << e.what();
  }
  EXPECT_TRUE(fs::is_empty(plan_.run_dir));
}

TEST_F(RunFolders, FolderThatCannotBeMadeIsNamed) {
  write_file_atomic(top_ / "runs", "a file where the folder should be");
  EXPECT_THROW(make(), Error);
}

TEST_F(RunFolders, MetricsAreJsonLinesWithNullForWhatIsNotFinite) {
  RunFolder folder = make();
  const double inf = std::numeric_limits<double>::infinity();
  folder.metrics(10, 400, {{"loss", 0.1}, {"nothing", std::nan("")}, {"most", inf}, {"too_big_for_float", 1e300}},
                 diagnostics_);
  folder.metrics(20, 800, {{"loss", -1e-30}, {"nothing", 1.0}, {"most", -inf}, {"too_big_for_float", 3e38}},
                 diagnostics_);
  folder.flush();
  const std::vector<Json> all = lines("metrics.jsonl");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["update"], 10);
  EXPECT_EQ(all[0]["env_steps"], 400);
  EXPECT_EQ(all[0]["loss"].get<float>(), 0.1f) << "the precision of TensorBoard";
  for (const char* name : {"nothing", "most", "too_big_for_float"}) EXPECT_TRUE(all[0][name].is_null()) << name;
  EXPECT_EQ(all[1]["loss"].get<float>(), -1e-30f);
  EXPECT_EQ(all[1]["nothing"], 1.0);
  EXPECT_EQ(all[1]["too_big_for_float"].get<float>(), 3e38f);
  for (const char* name : {"contribution_by_age", "log_ratio_by_age"}) {
    ASSERT_EQ(all[0][name].size(), kAgeBins) << name;
    EXPECT_EQ(all[0][name][0].size(), 8u) << name;
  }
}

TEST_F(RunFolders, EpisodesAndEvaluationsAreJsonLines) {
  RunFolder folder = make();
  folder.episode({3, 7, -12.25, 40, 1000, 55, true});
  folder.episode({0, 0, std::nan(""), 1, 4, 0, false});
  folder.evaluation(100, 2000, {{500, 1.5, 20}, {}, {}, {}});
  folder.evaluation(200, 4000, {});
  folder.flush();
  const std::vector<Json> episodes = lines("episodes.jsonl"), evaluations = lines("evaluations.jsonl");
  ASSERT_EQ(episodes.size(), 2u);
  EXPECT_EQ(episodes[0], Json::parse(R"({"env":3,"episode":7,"return":-12.25,"length":40,"env_steps":1000,"version":55,
                                         "terminated":true})"));
  EXPECT_TRUE(episodes[1]["return"].is_null());
  ASSERT_EQ(evaluations.size(), 2u);
  EXPECT_EQ(evaluations[0], Json::parse(R"({"update":100,"env_steps":2000,"mean":500.0,"std":1.5,"episodes":20})"));
  EXPECT_TRUE(evaluations[1]["mean"].is_null()) << "no episode has no mean";
}

TEST_F(RunFolders, EventFileOnlyWhereAskedFor) {
  const auto event_files = [&] {
    return std::ranges::count_if(fs::directory_iterator(plan_.run_dir), [](const fs::directory_entry& e) {
      return e.path().filename().string().starts_with("events.out.tfevents.");
    });
  };
  { make(); }
  EXPECT_EQ(event_files(), 1);
  fs::remove_all(plan_.run_dir);
  plan_.config.log.tensorboard = false;
  { make(); }
  EXPECT_EQ(event_files(), 0);
}

TEST_F(RunFolders, SummaryHoldsWindowMeansAndFingerprints) {
  // A command line is bytes, not always text: the summary must be JSON all the same.
  RunFolder folder = make("gipo train '\xff\"'");
  for (int i = 1; i <= 10; ++i) folder.metrics(i, i * 100, {{"x", i}, {"never", std::nan("")}}, diagnostics_);
  RunSummary s;
  s.ended = "finished";
  s.final_return = {10, 2, 100};
  s.weights_fingerprint = 0xabc;
  folder.write_summary(s);
  const Json summary = Json::parse(read_file(plan_.run_dir + "/summary.json"));
  EXPECT_EQ(summary["ended"], "finished");
  EXPECT_EQ(summary["fingerprint"]["weights"], "00000abc");
  EXPECT_EQ(summary["final_return"]["mean"], 10.0);
  EXPECT_TRUE(summary["eval_return"]["mean"].is_null());
  EXPECT_EQ(summary["window"]["x"], 9.0) << "lines 8, 9 and 10";
  EXPECT_FALSE(summary["window"].contains("never"));
  EXPECT_EQ(summary["staleness"]["capacity"], plan_.capacity);
}

TEST_F(RunFolders, WindowIsTheLastFifthOfTheEnvironmentSteps) {
  const std::string path = top_ / "metrics.jsonl";
  std::string text;
  for (int i = 1; i <= 100; ++i) {
    // Figures of the first four fifths would be seen at once; one figure is missing now and then.
    text += "{\"update\":" + std::to_string(i) + ",\"env_steps\":" + std::to_string(50 * i) +
            ",\"a\":" + std::to_string(i < 80 ? 1000000 : i) + ",\"b\":" + (i % 2 == 0 ? "null" : std::to_string(i)) +
            ",\"h\":[[1,2]]}\n";
  }
  write_file_atomic(path, text);
  const Figures means = last_means(path);
  ASSERT_EQ(means.size(), 2u);
  EXPECT_EQ(means[0].first, "a");
  EXPECT_DOUBLE_EQ(means[0].second, 90);
  EXPECT_EQ(means[1].first, "b");
  EXPECT_DOUBLE_EQ(means[1].second, 90) << "the mean of the odd ones from 81 to 99: a null does not count";
}

TEST_F(RunFolders, WindowOfNothingIsEmpty) {
  write_file_atomic(top_ / "empty", "");
  EXPECT_TRUE(last_means(top_ / "empty").empty());
  EXPECT_TRUE(last_means(top_ / "missing").empty());
}

}  // namespace
}  // namespace gipo
