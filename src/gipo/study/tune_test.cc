#include "gipo/study/tune.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/io/temporary_folder.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;

class TunedSuites : public testing::Test {
 protected:
  void SetUp() override { write_file_atomic(folder_ + "/base.toml", "[learner]\nupdates = 300\n"); }

  Tuning parse(const std::string& text, const SuiteChoice& choice = {}) const {
    return parse_tuning(text, "s.toml", folder_, folder_ + "/out", choice);
  }
  Suite plain(const std::string& text) const { return parse_suite(text, "s.toml", folder_, folder_ + "/out"); }
  // What both commands say of a mistake.
  void refused(const std::string& text, const std::string& part) const {
    for (const bool tuning : {true, false}) {
      try {
        tuning ? (void)parse(text) : (void)plain(text);
        ADD_FAILURE() << "accepted: " << part;
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      }
    }
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  const std::string head_ = "[suite]\nname = \"s\"\nconfig = \"base.toml\"\nseeds = [1, 2]\n";
  const std::string tune_ = "[tune]\nseeds = [11, 12, 13, 14]\nfirst_seeds = 1\ncandidates = 4\n";
  const std::string grid_ = "grid.learner.policy_lr = [1e-4, 1e-3]\n";
  const std::string task_ = "[[task]]\nname = \"CartPole-v1\"\nrandom = 20\nreference = 500\n";
  const std::string gipo_ = "[[method]]\nname = \"GIPO\"\ntune.surrogate.sigma = [0.25, 0.5]\n";
  const std::string ppo_ = "[[method]]\nname = \"PPO\"\nsurrogate.name = \"ppo\"\n";
  const std::string whole_ = head_ + tune_ + grid_ + task_ + gipo_ + ppo_;
};

TEST_F(TunedSuites, CandidatesAreThePointsOfTheCommonAndTheOwnGrid) {
  const Tuning t = parse(whole_);
  std::vector<std::string> options;
  for (const Candidate& c : t.candidates) options.push_back(t.methods[c.method] + ": " + settings_text(c.settings));
  EXPECT_EQ(options, (std::vector<std::string>{"GIPO: learner.policy_lr = 0.0001, surrogate.sigma = 0.25",
                                               "GIPO: learner.policy_lr = 0.0001, surrogate.sigma = 0.5",
                                               "GIPO: learner.policy_lr = 0.001, surrogate.sigma = 0.25",
                                               "GIPO: learner.policy_lr = 0.001, surrogate.sigma = 0.5",
                                               "PPO: learner.policy_lr = 0.0001", "PPO: learner.policy_lr = 0.001"}));
  EXPECT_EQ(t.runs.runs.size(), 6u * 4);
  EXPECT_EQ(t.runs.runs[2].plan.config.learner.policy_lr, 1e-3);
  EXPECT_EQ(t.runs.runs[4].plan.config.surrogate.name, "ppo");
  EXPECT_EQ(t.runs.runs.back().seed, 14);
  EXPECT_EQ(plain(whole_).runs.size(), 4u) << "a plain suite takes no notice";
  const std::string own = "tune.learner.policy_lr = [3e-3]\n";
  EXPECT_EQ(parse(whole_ + own).candidates.size(), 5u) << "in place of the common list";
}

TEST_F(TunedSuites, AnyOptionCanBeTried) {
  const std::string grid = "grid.policy.hidden = [[8], [16, 16]]\ngrid.env.options.healthy_z_range = [[0.5, inf]]\n";
  const Tuning t = parse(head_ + tune_ + grid + "[[task]]\nname = \"Hopper-v5\"\nrandom = 0\nreference = 1\n" + ppo_);
  EXPECT_EQ(settings_text(t.candidates[1].settings),
            "env.options.healthy_z_range = [0.5, inf], policy.hidden = [16, 16]");
  EXPECT_EQ(t.runs.runs[1].plan.config.policy.hidden, (Widths{16, 16}));
  const auto json = nlohmann::json::parse(Tuner(t).json());
  EXPECT_EQ(json["methods"][0]["tried"][1]["options"]["policy.hidden"], (Widths{16, 16}));
  EXPECT_EQ(json["methods"][0]["tried"][1]["options"]["env.options.healthy_z_range"], "[0.5, inf]");
  EXPECT_TRUE(json["methods"][0]["chosen"].is_null());
}

TEST_F(TunedSuites, ALargeGridGivesAFixedChoice) {
  const std::string large = "grid.learner.policy_lr = [1e-4, 2e-4, 3e-4, 4e-4]\ngrid.learner.value_lr = [1e-3, 2e-3]\n";
  const Tuning t = parse(head_ + tune_ + large + task_ + ppo_ + "[[method]]\nname = \"m\"\n");
  ASSERT_EQ(t.candidates.size(), 8u);
  std::set<std::string> points;
  for (std::size_t c = 0; c < 4; ++c) {
    points.insert(settings_text(t.candidates[c].settings));
    EXPECT_EQ(settings_text(t.candidates[c].settings), settings_text(t.candidates[c + 4].settings))
        << "the same for all";
  }
  EXPECT_EQ(points.size(), 4u);
}

TEST_F(TunedSuites, AGridMayGrowAndTheRunsKeepTheirNames) {
  const Tuning before = parse(whole_),
               after = parse(head_ + tune_ + "grid.learner.policy_lr = [1e-5, 1e-4, 1e-3]\n" + task_ + ppo_);
  EXPECT_EQ(before.candidates[4].name, after.candidates[1].name);
  EXPECT_NE(after.candidates[0].name, after.candidates[1].name);
}

TEST_F(TunedSuites, EveryRegimeIsTunedForItself) {
  const std::string regimes = "[[regime]]\nname = \"a\"\n[[regime]]\nname = \"b\"\nseeds = [2]\n";
  const Tuning t = parse(head_ + tune_ + grid_ + task_ + ppo_ + gipo_ + regimes);
  Tuner tuner(t);
  std::vector<std::size_t> runs;
  while (!tuner.done()) {
    const Suite round = tuner.round_suite();
    runs.push_back(round.runs.size());
    tuner.take(round, [](const SuiteRun& run) {
      const double rate = run.plan.config.learner.policy_lr, sigma = run.plan.config.surrogate.sigma;
      return (run.regime == 0 ? rate : -rate) + (run.plan.config.surrogate.name == "gipo" ? 1e-5 * sigma : 0);
    });
  }
  // Six candidates in two regimes, then 2 + 2 and 2 + 2; one seed more, then two.
  EXPECT_EQ(runs, (std::vector<std::size_t>{12, 8, 16}));
  EXPECT_EQ(tuner.chosen_toml(),
            "# What `gipo tune` chose for the methods of the suite \"s\".\n"
            "\n[[method]]\nname = \"PPO\"\nregime = \"a\"\nlearner.policy_lr = 0.001\n"
            "\n[[method]]\nname = \"PPO\"\nregime = \"b\"\nlearner.policy_lr = 0.0001\n"
            "\n[[method]]\nname = \"GIPO\"\nregime = \"a\"\nlearner.policy_lr = 0.001\nsurrogate.sigma = 0.5\n"
            "\n[[method]]\nname = \"GIPO\"\nregime = \"b\"\nlearner.policy_lr = 0.0001\nsurrogate.sigma = 0.5\n");
  const auto json = nlohmann::json::parse(tuner.json());
  ASSERT_EQ(json["methods"].size(), 4u);
  const auto& first = json["methods"][0];
  EXPECT_EQ(first["chosen"], t.candidates[1].name);
  EXPECT_EQ(first["runner_up"], t.candidates[0].name);
  EXPECT_EQ(first["tried"][1]["seeds"].size(), 4u);
  EXPECT_EQ(first["tried"][1]["scores"]["CartPole-v1"].size(), 4u);
  EXPECT_TRUE(first["tried"][1]["dropped_in_round"].is_null());
  EXPECT_EQ(json["methods"][2]["tried"][0]["dropped_in_round"], 1);
}

TEST_F(TunedSuites, FailedRunsAreTheWorstAndAMethodWithoutAnyOtherIsAnError) {
  const Tuning t = parse(whole_);
  Tuner tuner(t);
  while (!tuner.done()) {
    tuner.take(tuner.round_suite(), [](const SuiteRun& run) {
      return run.plan.config.learner.policy_lr > 5e-4 ? std::nullopt : std::optional(0.1);
    });
  }
  for (const TuneResult& r : tuner.results()) EXPECT_EQ(setting_toml(r.settings[0]), "learner.policy_lr = 0.0001");
  const auto json = nlohmann::json::parse(tuner.json());
  EXPECT_EQ(json["methods"][1]["tried"][1]["failed_runs"], 4);
  EXPECT_TRUE(json["methods"][1]["tried"][1]["scores"]["CartPole-v1"][0].is_null());
  Tuner other(t);
  const Suite round = other.round_suite();
  EXPECT_THROW(other.take(round, [](const SuiteRun&) { return std::nullopt; }), RunError);
}

TEST_F(TunedSuites, MistakesAreNamedWithTheirLine) {
  refused(head_ + tune_ + "sedes = [1]\n" + task_ + ppo_, "s.toml:9: unknown key tune.sedes (did you mean seeds?)");
  refused(head_ + "[tune]\nseeds = [7, 2]\n" + grid_ + task_ + ppo_, "s.toml:6: tune.seeds: 2 is in suite.seeds");
  refused(head_ + "[tune]\n" + grid_ + task_ + ppo_, "s.toml:5: [tune]: seeds is missing");
  refused(head_ + "[[tune]]\nseeds = [7]\n" + task_ + ppo_, "wanted [tune], once in brackets");
  refused(head_ + tune_ + task_ + ppo_, "s.toml:5: [tune]: nothing to choose from");
  refused(head_ + tune_ + "keep = 1.0\n" + grid_ + task_ + ppo_, "s.toml:9: tune.keep = 1: wanted a number above 0");
  refused(head_ + tune_ + "keep = 0\n" + grid_ + task_ + ppo_, "s.toml:9: tune.keep = 0");
  refused(head_ + tune_ + "score = \"best\"\n" + grid_ + task_ + ppo_, "s.toml:9: tune.score = best: wanted training");
  refused(head_ + "[tune]\nseeds = [7]\nfirst_seeds = 2\n" + grid_ + task_ + ppo_, "s.toml:7: tune.first_seeds = 2");
  refused(head_ + "[tune]\nseeds = [7]\ncandidates = 0\n" + grid_ + task_ + ppo_, "s.toml:7: tune.candidates = 0");
  refused(head_ + tune_ + "grid.learner.policy_rl = [1]\n" + task_ + ppo_,
          "s.toml:9: unknown option learner.policy_rl");
  refused(head_ + tune_ + "grid.lerner.policy_lr = [1]\n" + task_ + ppo_, "s.toml:9: unknown option lerner.policy_lr");
  refused(head_ + tune_ + "grid.learner.policy_lr = []\n" + task_ + ppo_,
          "s.toml:9: tune.grid.learner.policy_lr: wanted");
  refused(head_ + tune_ + "grid.learner.policy_lr = 1e-3\n" + task_ + ppo_, "wanted a list of values to try");
  refused(head_ + tune_ + "grid.learner.policy_lr = [1e-3,\n-1]\n" + task_ + ppo_, "s.toml:10: learner.policy_lr = -1");
  refused(head_ + tune_ + "grid.learner.policy_lr = [1e-3, 0.001]\n" + task_ + ppo_, "0.001 stands there twice");
  refused(head_ + tune_ + "grid.run.seed = [1]\n" + task_ + ppo_, "run.seed is the suite's own");
  refused(head_ + tune_ + "grid = 3\n" + task_ + ppo_, "s.toml:9: tune.grid: wanted");
  refused(head_ + tune_ + grid_ + task_ + ppo_ + "tune.surrogate.epsilno = [1]\n", "s.toml:17: unknown option");
  refused(head_ + task_ + gipo_, "s.toml:11: method GIPO has tune, but the file has no part [tune]");
  refused(head_ + tune_ + grid_ + "[[task]]\nname = \"CartPole-v1\"\n" + ppo_, "s.toml:11: task CartPole-v1: random");
  EXPECT_THROW(parse(head_ + task_ + ppo_), Error);
}

TEST_F(TunedSuites, ASuiteTakesWhatWasChosen) {
  const std::string head = head_ + "tuned = \"t/s.toml\"\n",
                    regimes = "[[regime]]\nname = \"a\"\n[[regime]]\nname = \"b\"\n";
  const std::string rest = task_ + ppo_ + "learner.policy_lr = 0.5\n[[method]]\nname = \"m\"\n";
  fs::create_directories(folder_ + "/t");
  const auto write = [&](const std::string& text) { write_file_atomic(folder_ + "/t/s.toml", text); };
  const std::string m = "[[method]]\nname = \"m\"\n";
  write(
      "[[method]]\nname = \"PPO\"\nregime = \"a\"\nlearner.policy_lr = 0.25\n[[method]]\nname = \"PPO\"\n"
      "regime = \"b\"\nlearner.policy_lr = 0.125\n" +
      m);
  const Suite s = plain(head + rest + regimes);
  EXPECT_EQ(s.runs[0].plan.config.learner.policy_lr, 0.25);
  EXPECT_EQ(s.runs[2].plan.config.learner.policy_lr, 0.125);
  EXPECT_EQ(s.runs[1].plan.config.learner.policy_lr, 3e-4);
  EXPECT_NE(std::ranges::find(s.runs[0].arguments, "learner.policy_lr=0.25"), s.runs[0].arguments.end());
  const auto says = [&](const std::string& text, const std::string& part) {
    write(text);
    try {
      plain(head + rest);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  const std::string ppo = "[[method]]\nname = \"PPO\"\n";
  says(m, "t/s.toml: no options for method PPO");
  says(m + ppo + "[[method]]\nname = \"PPO2\"\n", "t/s.toml:6: the suite has no method PPO2 (did you mean PPO?)");
  says(m + ppo + "regime = \"c\"\n", "t/s.toml:5: the suite has no regime c");
  says(m + ppo + ppo, "t/s.toml:5: method PPO stands there twice");
  says(m + ppo + "learner.policy_lr = -1\n", "t/s.toml:5: learner.policy_lr = -1");
  says(m + ppo + "learnr.policy_lr = 1\n", "t/s.toml:5: unknown option learnr.policy_lr");
  says(m + ppo + "[suite]\n", "unknown part suite");
  fs::remove(folder_ + "/t/s.toml");
  EXPECT_THROW(plain(head + rest), Error);
  EXPECT_EQ(parse(head + tune_ + grid_ + rest).candidates.size(), 4u) << "not read while tuning";
}

}  // namespace
}  // namespace gipo
