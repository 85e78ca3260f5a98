#include "gipo/study/suite.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/io/temporary_folder.h"
#include "gipo/plan/option_table.h"
#include "gipo/study/suite_state.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;

class Suites : public testing::Test {
 protected:
  void SetUp() override {
    write_file_atomic(folder_ + "/base.toml", "[learner]\nupdates = 300\npolicy_lr = 1e-3\n");
    write_file_atomic(folder_ + "/other.toml", "[learner]\nupdates = 400\n");
  }

  Suite parse(const std::string& text) const { return parse_suite(text, "s.toml", folder_, folder_ + "/out"); }
  std::string refusal(const std::string& text) const {
    try {
      parse(text);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  const std::string head_ = "[suite]\nname = \"s\"\nconfig = \"base.toml\"\nseeds = [3, 1]\n";
  const std::string task_ = "[[task]]\nname = \"CartPole-v1\"\n", method_ = "[[method]]\nname = \"m\"\n";
};

TEST_F(Suites, EveryCombinationOnceSeedBySeed) {
  const Suite s = parse(head_ + task_ + "[[task]]\nname = \"Pendulum-v1\"\nrandom = -1200\nreference = -150\n" +
                        method_ + "[[method]]\nname = \"n\"\n[[regime]]\nname = \"a\"\n[[regime]]\nname = \"b\"\n");
  ASSERT_EQ(s.runs.size(), 16u);
  EXPECT_EQ(s.runs.front().seed, 3);
  EXPECT_EQ(s.runs.back().seed, 1);
  EXPECT_EQ(s.runs.front().plan.name, "CartPole-v1-m-a-3");
  EXPECT_EQ(s.runs.back().plan.run_dir, folder_ + "/out/runs/Pendulum-v1-n-b-1");
  EXPECT_EQ(*s.tasks[1].random, -1200);
  EXPECT_FALSE(s.tasks[0].random);
}

TEST_F(Suites, APartOfItCanBeChosenAndKeepsItsNames) {
  const std::string text =
      head_ + task_ + "[[task]]\nname = \"Pendulum-v1\"\n" + method_ + "[[method]]\nname = \"n\"\n";
  const auto choose = [&](const SuiteChoice& c) { return parse_suite(text, "s.toml", folder_, folder_ + "/out", c); };
  const Suite s = choose({{"Pendulum-v1"}, {"n"}, {}, {1}});
  ASSERT_EQ(s.runs.size(), 1u);
  EXPECT_EQ(s.runs[0].plan.name, "Pendulum-v1-n-1");
  EXPECT_EQ(s.tasks[s.runs[0].task].name, "Pendulum-v1");
  EXPECT_EQ(choose({{}, {}, {}, {1, 3}}).seeds, (std::vector<std::int64_t>{3, 1})) << "the file's order";
  for (const auto& [choice, part] :
       {std::pair<SuiteChoice, std::string>{{{"Pendulum"}, {}, {}, {}}, "no task Pendulum (did you mean Pendulum-v1?)"},
        {{{}, {"o"}, {}, {}}, "no method o"},
        {{{}, {}, {"r"}, {}}, "no regime r"},
        {{{}, {}, {}, {2}}, "no seed 2"}}) {
    try {
      choose(choice);
      FAIL() << part;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("s.toml: " + part), std::string::npos) << e.what();
    }
  }
}

TEST_F(Suites, ARegimeMayHaveFewerSeeds) {
  const Suite s = parse(head_ + task_ + method_ + "[[regime]]\nname = \"a\"\n[[regime]]\nname = \"b\"\nseeds = [1]\n");
  std::vector<std::string> names;
  for (const SuiteRun& run : s.runs) names.push_back(run.plan.name);
  EXPECT_EQ(names, (std::vector<std::string>{"CartPole-v1-m-a-3", "CartPole-v1-m-a-1", "CartPole-v1-m-b-1"}));
}

TEST_F(Suites, TheParticularWinsOverTheGeneral) {
  const Suite s = parse(head_ + "learner.value_lr = 0.1\nlearner.entropy_coef = 0.1\n" + task_ +
                        "learner.entropy_coef = 0.3\n" + method_ + "learner.entropy_coef = 0.4\n[[regime]]\n" +
                        "name = \"r\"\nconfig = \"other.toml\"\nlearner.entropy_coef = 0.2\nadvantage.gamma = 0.5\n");
  const Config& c = s.runs[0].plan.config;
  EXPECT_EQ(c.learner.value_lr, 0.1);
  EXPECT_EQ(c.learner.entropy_coef, 0.4);
  EXPECT_EQ(c.advantage.gamma, 0.5);
  EXPECT_EQ(c.learner.updates, 400);
  EXPECT_EQ(c.learner.policy_lr, 3e-4);  // base.toml is not read where the regime has its own
}

TEST_F(Suites, ALengthReplacesOneThatIsCountedOtherwise) {
  const Suite s = parse(head_ + "learner.env_steps = 5000\n" + task_ + method_ + "[[method]]\nname = \"short\"\n" +
                        "learner.updates = 70\n");
  EXPECT_EQ(s.runs[0].plan.total_env_steps(), 5000);
  EXPECT_EQ(s.runs[1].plan.config.learner.updates, 70);
  for (const SuiteRun* run : {&s.runs[0], &s.runs[1]}) {
    LoadedConfig loaded = load_config(run->arguments[1]);
    for (std::size_t i = 2; i + 1 < run->arguments.size(); ++i) {
      if (run->arguments[i] == "--set") apply_override(loaded, run->arguments[i + 1]);
    }
    EXPECT_EQ(make_plan(loaded).config.learner.updates, run->plan.config.learner.updates);
  }
}

TEST_F(Suites, AConfigMayBeAPreset) {
  std::string text = head_;
  text.replace(text.find("base.toml"), 9, "classic/stale");
  const SuiteRun run = parse(text + task_ + method_).runs[0];
  EXPECT_EQ(run.arguments[1], "classic/stale");
  EXPECT_EQ(run.plan.config.surrogate.centre, Centre::kProximal);
}

// The command line alone makes the run that was checked.
TEST_F(Suites, ArgumentsGiveTheCheckedConfig) {
  const Suite s =
      parse(head_ + "policy.hidden = [8, 8]\n" + task_ + method_ + "surrogate = {name = \"ppo\", epsilon = 0.3}\n");
  const SuiteRun& run = s.runs[1];
  LoadedConfig loaded = load_config(run.arguments[1]);
  for (std::size_t i = 2; i + 1 < run.arguments.size(); ++i) {
    if (run.arguments[i] == "--set") apply_override(loaded, run.arguments[i + 1]);
    if (run.arguments[i] == "--seed") apply_override(loaded, "run.seed=" + run.arguments[i + 1]);
    if (run.arguments[i] == "--name") apply_override(loaded, "run.name=" + run.arguments[i + 1]);
  }
  EXPECT_EQ(config_to_toml(loaded.config), config_to_toml(run.plan.config));
  EXPECT_EQ(run.plan.config.surrogate.epsilon, 0.3);
}

// Those of the task too, whichever part of the file gives them.
TEST_F(Suites, ArgumentsGiveTheOptionsOfTheTask) {
  write_file_atomic(folder_ + "/base.toml", "[env.options]\nhealthy_reward = 1\nframe_skip = 2\n");
  const Suite s = parse(head_ + "env.options.healthy_reward = 2\n" + "[[task]]\nname = \"Hopper-v5\"\n" +
                        "env.options.healthy_z_range = [0.5, inf]\n" + method_ + "env.options.healthy_reward = 4\n" +
                        "[[regime]]\nname = \"r\"\nenv.options.terminate_when_unhealthy = false\n");
  const std::vector<std::string>& arguments = s.runs[0].arguments;
  LoadedConfig loaded = load_config(arguments[1]);
  for (std::size_t i = 2; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == "--set") apply_override(loaded, arguments[i + 1]);
  }
  EXPECT_EQ(make_plan(loaded).config.env_options, s.runs[0].plan.config.env_options);
  EXPECT_EQ(s.runs[0].plan.config.env_options.at("healthy_reward"), OptionValue(4.0));
  EXPECT_EQ(s.runs[0].plan.config.env_options.at("frame_skip"), OptionValue(std::int64_t{2}));
}

TEST_F(Suites, MistakesAreNamedWithTheirLine) {
  const auto says = [&](const std::string& text, const std::string& part) {
    const std::string why = refusal(text);
    EXPECT_NE(why.find(part), std::string::npos) << why;
  };
  says("[suite\n", "s.toml:1: not valid TOML");
  says(task_, "no part [suite]");
  says("[suite]\nname = \"x\"\n", "config is missing");
  says(head_ + task_, "no part [[method]]");
  says(head_ + task_ + method_ + "[[regim]]\n", "s.toml:9: unknown part regim (did you mean regime?)");
  says(head_ + "sedes = 1\n" + task_ + method_, "s.toml:5: unknown key sedes (did you mean seeds?)");
  says(head_ + "[[task]]\nname = \"CartPole-v2\"\n" + method_, "s.toml:6: env.id");
  says(head_ + "[[task]]\nname = \"CartPole-v2\"\n" + method_, "did you mean CartPole-v1?");
  says(head_ + task_ + method_ + "surrogate.nam = \"ppo\"\n", "s.toml:9: unknown option surrogate.nam");
  says(head_ + task_ + method_ + "surrogate.name = \"gippo\"\n", "s.toml:9: surrogate.name = gippo is not known");
  says(head_ + task_ + method_ + "surrogat.name = \"ppo\"\n", "unknown key surrogat (did you mean surrogate?)");
  says(head_ + task_ + method_ + "surrogate = 3\n", "s.toml:9: surrogate: wanted options");
  says(head_ + task_ + method_ + "learner.updates = -1\n", "s.toml:9: learner.updates = -1");
  says(head_ + task_ + method_ + method_, "s.toml:10: method m stands there twice");
  says(head_ + task_ + method_ + "run.seed = 1\n", "run.seed is the suite's own");
  says(head_ + task_ + "random = 1\n" + method_, "random and reference go together");
  says(head_ + task_ + "random = 1\nreference = 1\n" + method_, "must differ");
  says(head_ + task_ + "random = nan\nreference = 1\n" + method_, "s.toml:7: random: wanted a number");
  says("[suite]\nname = \"s\"\nconfig = \"base.toml\"\nseeds = [1, 1]\n" + task_ + method_, "1 stands there twice");
  says("[suite]\nname = \"s\"\nconfig = \"base.toml\"\nseeds = []\n" + task_ + method_, "suite.seeds: wanted a list");
  says("[suite]\nname = \"s\"\nconfig = \"gone.toml\"\nseeds = [1]\n" + task_ + method_, "gone.toml");
  says("[suite]\nname = \"a/b\"\nconfig = \"base.toml\"\nseeds = [1]\n" + task_ + method_, "without a slash");
  const std::string regime = head_ + task_ + method_ + "[[regime]]\nname = \"r\"\n";
  says(regime + "seeds = [2]\n", "s.toml:11: regime.seeds: 2 is not in suite.seeds");
  says(regime + "seeds = []\n", "s.toml:11: regime.seeds: wanted a list");
  says(head_ + task_ + "[[method]]\nname = \"a b\"\n[[method]]\nname = \"a,b\"\n", "would share the folder");
}

TEST_F(Suites, FoldersSayWhereARunStands) {
  const Suite s = parse(head_ + task_ + method_);
  const SuiteRun& run = s.runs[0];
  const std::string& folder = run.plan.run_dir;
  EXPECT_EQ(look_at(run).state, RunState::kAbsent);
  fs::create_directories(folder);
  write_file_atomic(folder + "/config.toml", config_to_toml(run.plan.config));
  EXPECT_EQ(look_at(run).state, RunState::kAbsent);  // killed before its first checkpoint
  fs::create_directories(folder + "/checkpoints/000010");
  EXPECT_EQ(look_at(run).state, RunState::kStarted);
  write_file_atomic(folder + "/summary.json", R"({"schema_version": 1, "ended": "interrupted"})");
  EXPECT_EQ(look_at(run).state, RunState::kStarted);
  write_file_atomic(folder + "/summary.json", R"({"schema_version": 1, "ended": "failed: no luck"})");
  EXPECT_EQ(look_at(run).why, "failed: no luck");
  for (const char* well : {"finished", "solved"}) {
    write_file_atomic(folder + "/summary.json", fmt::format(R"({{"schema_version": 1, "ended": "{}"}})", well));
    EXPECT_EQ(look_at(run).state, RunState::kFinished) << well;
  }
  for (const char* bad : {"", "{}", R"({"schema_version": 2, "ended": "finished"})"}) {
    write_file_atomic(folder + "/summary.json", bad);
    EXPECT_THROW(look_at(run), Error) << bad;
  }
}

TEST_F(Suites, RunMadeWithOtherOptionsIsRefused) {
  const Suite s = parse(head_ + task_ + method_);
  const Suite other = parse(head_ + task_ + method_ + "surrogate.sigma = 0.7\n");
  const Suite longer = parse(head_ + task_ + method_ + "learner.updates = 301\n");
  const Suite sooner = parse(head_ + task_ + method_ + "run.target_return = 100\n");
  fs::create_directories(s.runs[0].plan.run_dir);
  write_file_atomic(s.runs[0].plan.run_dir + "/config.toml", config_to_toml(s.runs[0].plan.config));
  EXPECT_NO_THROW(look_at(s.runs[0]));
  EXPECT_THROW(look_at(other.runs[0]), Error);
  EXPECT_THROW(look_at(longer.runs[0]), Error);
  EXPECT_THROW(look_at(sooner.runs[0]), Error);
}

TEST_F(Suites, OnlyRemnantsOfARunAreRemoved) {
  const std::string run = folder_ + "/run";
  fs::create_directories(run);
  write_file_atomic(run + "/config.toml", "");
  write_file_atomic(run + "/thesis.txt", "years of work");
  EXPECT_THROW(remove_remnants(run), Error);
  EXPECT_TRUE(fs::exists(run + "/thesis.txt"));
  fs::remove(run + "/thesis.txt");
  remove_remnants(run);
  EXPECT_FALSE(fs::exists(run));
}

TEST_F(Suites, ProgressIsReadFromTheLastLine) {
  fs::create_directories(folder_ + "/run");
  EXPECT_EQ(updates_done(folder_ + "/run"), 0);
  write_file_atomic(folder_ + "/run/metrics.jsonl", "{\"update\":10,\"x\":1}\n{\"update\":20,\"x\":1}\n{\"upd");
  EXPECT_EQ(updates_done(folder_ + "/run"), 20);
}

TEST_F(Suites, TheFileForReadersListsEveryRun) {
  EXPECT_EQ(nlohmann::json::parse(suite_json(parse(head_ + task_ + method_)))["runs"].size(), 2u);
}

TEST_F(Suites, TheFileForReadersKeepsWhatWasChosenEarlier) {
  const std::string second = "[[task]]\nname = \"Acrobot-v1\"\n";
  const std::string text = head_ + task_ + second + method_;
  const auto of = [&](const std::string& file, const SuiteChoice& choice) {
    return parse_suite(file, "s.toml", folder_, folder_ + "/out", choice);
  };
  const std::string whole = suite_json(of(text, {}));
  const std::string one = suite_json(of(text, {{"Acrobot-v1"}, {}, {}, {}}));
  EXPECT_NE(one, whole);
  EXPECT_EQ(suite_json(of(text, {{"CartPole-v1"}, {}, {}, {}}), one), whole);
  EXPECT_EQ(suite_json(of(text, {{"Acrobot-v1"}, {}, {}, {}}), whole), whole);
  EXPECT_EQ(suite_json(of(head_ + task_ + method_, {}), whole), suite_json(of(head_ + task_ + method_, {})));
  for (const char* damaged : {"", "{", "[]", R"({"tasks": 3})"}) {
    EXPECT_EQ(suite_json(of(text, {}), damaged), whole) << damaged;
  }
}

}  // namespace
}  // namespace gipo
