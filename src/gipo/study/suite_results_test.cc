#include "gipo/study/suite_results.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "gipo/core/error.h"
#include "gipo/core/message_of.h"
#include "gipo/io/files.h"
#include "gipo/io/temporary_folder.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;

// Two seeds of two methods; what stands in results.json and no folder of a run.
class SuiteRows : public testing::Test {
 protected:
  void SetUp() override {
    write_file_atomic(dir_ / "base.toml", "[learner]\nupdates = 300\n");
    fs::create_directories(dir_ / "out");
  }
  Suite parse(const std::string& more = "", const SuiteChoice& choice = {}) const {
    return parse_suite(
        "[suite]\nname = \"s\"\nconfig = \"base.toml\"\nseeds = [3, 1]\n[[task]]\nname = \"CartPole-v1\"\n"
        "[[method]]\nname = \"m\"\n[[method]]\nname = \"n\"\nsurrogate.sigma = 0.7\n" +
            more,
        "s.toml", dir_.path(), dir_ / "out", choice);
  }
  std::string checksum(const std::string& more) const {
    return options_checksum(parse("[[method]]\nname = \"o\"\n" + more).runs[2].plan.config);
  }
  static std::string row_text(const Suite& suite, std::size_t run, const std::string& options) {
    return fmt::format(
        R"({{"task":"CartPole-v1","method":"{}","regime":"-","seed":{},"name":"{}",{}"ended":"finished",)"
        R"("final_return":{{"mean":1e-07}},"eval_return":{{"mean":null}},"more":[-0.0,0.1]}})",
        suite.methods[suite.runs[run].method], suite.runs[run].seed, suite.runs[run].plan.name, options);
  }
  static std::string finished(const Suite& suite, std::size_t run) {
    return row_text(suite, run, fmt::format("\"options\":\"{}\",", options_checksum(suite.runs[run].plan.config)));
  }
  void write(const std::string& rows) const { write_file_atomic(path_, "[\n" + rows + "\n]\n"); }

  const TemporaryFolder dir_;
  const std::string path_ = dir_ / "out/results.json";
};

TEST_F(SuiteRows, ChecksumIsOfTheOptionsThatDecideAResultAndAreNotDefaults) {
  const std::string plain = checksum("");
  EXPECT_EQ(plain.size(), 8u);
  for (const char* same : {"run.threads = 2\n", "eval.episodes = 3\n", "log.tensorboard = false\n",
                           "checkpoint.every_updates = 7\n", "surrogate.sigma = 0.5\n", "env.workers = 3\n"}) {
    EXPECT_EQ(checksum(same), plain) << same;
  }
  for (const char* other : {"surrogate.sigma = 0.51\n", "learner.updates = 301\n", "run.target_return = 100\n",
                            "eval.every_updates = 10\neval.target_return = 100\n", "env.count = 2\n"}) {
    EXPECT_NE(checksum(other), plain) << other;
  }
  const std::string hopper = "env.id = \"Hopper-v5\"\n";
  EXPECT_NE(checksum(hopper), plain);
  EXPECT_EQ(checksum(hopper + "env.options.healthy_reward = 1\n"), checksum(hopper)) << "its default";
  EXPECT_NE(checksum(hopper + "env.options.healthy_reward = 2\n"), checksum(hopper));
  const Suite suite = parse();
  EXPECT_NE(options_checksum(suite.runs[0].plan.config), options_checksum(suite.runs[2].plan.config)) << "the seed";
}

TEST_F(SuiteRows, OneForEachRun) {
  const auto rows = nlohmann::json::parse(SuiteResults(parse()).text());
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["ended"], "not begun or not ended");
  EXPECT_EQ(rows[0]["options"], options_checksum(parse().runs[0].plan.config));
  EXPECT_EQ(rows[2]["seed"], 1);
}

TEST_F(SuiteRows, AFinishedOneStandsForARunWithoutAFolderAndIsWrittenAsItWas) {
  const Suite suite = parse();
  write(finished(suite, 2) + ",\n" + finished(suite, 0));
  const SuiteResults results(suite);
  EXPECT_TRUE(results.kept(0) && !results.kept(1) && results.kept(2) && !results.kept(3));
  EXPECT_EQ(results.row(2), finished(suite, 2));
  EXPECT_EQ(results.returns(0).training, 1e-07);
  EXPECT_FALSE(results.returns(0).greedy);
  EXPECT_EQ(results.text(), fmt::format("[\n{},\n{},\n{},\n{}\n]\n", finished(suite, 0), results.row(1),
                                        finished(suite, 2), results.row(3)));
}

TEST_F(SuiteRows, AFolderComesFirst) {
  const Suite suite = parse();
  write(finished(suite, 1));
  const std::string& folder = suite.runs[1].plan.run_dir;
  fs::create_directories(folder);
  SuiteResults results(suite);
  EXPECT_FALSE(results.kept(1));
  EXPECT_EQ(results.row(1), finished(suite, 1)) << "until the run has ended";
  results.take(1);
  EXPECT_EQ(results.row(1), finished(suite, 1));
  write_file_atomic(folder + "/summary.json", R"({"schema_version": 1, "ended": "solved", "updates": 9})");
  results.take(1);
  EXPECT_EQ(nlohmann::json::parse(results.row(1))["ended"], "solved");
  EXPECT_NO_THROW(SuiteResults(parse("learner.kl_coef = 0.3\n")));
}

TEST_F(SuiteRows, OneOfAnEarlierVersionIsRunAgainAndStaysUntilThen) {
  const Suite suite = parse();
  write(row_text(suite, 0, ""));
  const SuiteResults results(suite);
  EXPECT_FALSE(results.kept(0));
  EXPECT_EQ(results.row(0), row_text(suite, 0, ""));
}

TEST_F(SuiteRows, OneThatIsNotFinishedCountsForNothing) {
  const Suite suite = parse();
  std::string failed = finished(suite, 0);
  failed.replace(failed.find("finished"), 8, "failed: no luck");
  write(failed);
  EXPECT_FALSE(SuiteResults(suite).kept(0));
}

TEST_F(SuiteRows, OneWithOtherOptionsIsRefusedByName) {
  const Suite suite = parse();
  write(finished(suite, 1));
  const std::string why = message_of([&] { SuiteResults(parse("learner.kl_coef = 0.3\n")); });
  EXPECT_TRUE(why.starts_with(path_ + ": CartPole-v1-n-3 was run with other options")) << why;
  EXPECT_NE(why.find("remove the row or the file, or give the suite another --out"), std::string::npos) << why;
}

TEST_F(SuiteRows, OfRunsThatAreNotChosenStayInTheirPlaceAndForeignOnesBehind) {
  const Suite suite = parse(), part = parse("", {{}, {"n"}, {}, {1}});
  std::string foreign = finished(suite, 0), failed = finished(suite, 2);
  foreign.replace(foreign.find("\"m\""), 3, "\"gone\"").replace(foreign.find("v1-m-3"), 6, "v1-gone");
  failed.replace(failed.find("finished"), 8, "failed: no luck");
  write(foreign + ",\n" + failed + ",\n" + finished(suite, 1));
  const SuiteResults results(part);
  EXPECT_EQ(results.text(),
            fmt::format("[\n{},\n{},\n{},\n{}\n]\n", finished(suite, 1), failed, results.row(0), foreign));
}

TEST_F(SuiteRows, ADamagedFileIsNamed) {
  const Suite suite = parse();
  const std::string row = finished(suite, 0);
  const auto with = [&](const std::string& before, const std::string& after) {
    std::string text = row;
    return text.replace(text.find(before), before.size(), after);
  };
  for (const auto& [rows, part] : {std::pair<std::string, std::string>{row + ",", ":3: not valid JSON"},
                                   {fmt::format("{0},\n{0}", row), ": the run CartPole-v1-m-3 stands there twice"},
                                   {"1", ": row 1: wanted an object"},
                                   {with("\"m\"", "1"), ": row 1: method: wanted text"},
                                   {with("\"seed\":3", "\"seed\":0.5"), ": row 1: seed: wanted a whole number"},
                                   {with("1e-07", "NaN"), ":2: not valid JSON"},
                                   {with("1e-07", "1e999"), "final_return: mean: 1e999 is not accepted"},
                                   {with("1e-07", "true"), ": row 1: final_return: it has no mean"},
                                   {with("{\"mean\":null}", "[]"), ": row 1: eval_return: it has no mean"}}) {
    write(rows);
    const std::string why = message_of([&] { SuiteResults{suite}; });
    EXPECT_TRUE(why.starts_with(path_) && why.find(part) != std::string::npos) << why;
  }
  write_file_atomic(path_, "{}");
  EXPECT_EQ(message_of([&] { SuiteResults{suite}; }), path_ + ": wanted a list of rows, one per run");
}

}  // namespace
}  // namespace gipo
