#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "gipo/core/error.h"
#include "gipo/core/message_of.h"
#include "gipo/plan/config_file.h"
#include "gipo/plan/option_table.h"

namespace gipo {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

AssertionResult says(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (message.find(part) == std::string::npos) return AssertionFailure() << "no '" << part << "' in: " << message;
  }
  return AssertionSuccess();
}

std::vector<Option<Config>> all_options() {
  std::vector<Option<Config>> all;
  for (const OptionGroup<Config>& group : option_table())
    all.insert(all.end(), group.options.begin(), group.options.end());
  return all;
}

// The option alone in a file of three lines, on the third.
std::string file_with(const Option<Config>& o, const std::string& value) {
  const std::size_t dot = o.key.find('.');
  return fmt::format("# a comment\n[{}]\n{} = {}\n", o.key.substr(0, dot), o.key.substr(dot + 1), value);
}

std::string refusal(const Option<Config>& o, const std::string& value) {
  return message_of([&] { parse_config(file_with(o, value), "run.toml"); });
}

// The ends of "LOW to HIGH" or "above LOW"; nothing where any value or a list of words is accepted.
struct Range {
  double low = 0, high = 0;
  bool open_low = false;
};
std::optional<Range> range_of(const Option<Config>& o) {
  if (o.accepted.starts_with("above ")) return Range{std::stod(o.accepted.substr(6)), 1e300, true};
  const std::size_t to = o.accepted.find(" to ");
  if (to == std::string::npos) return std::nullopt;
  return Range{std::stod(o.accepted.substr(0, to)), std::stod(o.accepted.substr(to + 4)), false};
}

bool is_words(const Option<Config>& o) { return o.type == "text" && o.accepted.find(" or ") != std::string::npos; }

std::string as_toml(const Option<Config>& o, double v) {
  if (o.type == "list of integers") return fmt::format("[3, {}]", static_cast<std::int64_t>(v));
  if (o.type == "integer") return fmt::format("{}", static_cast<std::int64_t>(v));
  return fmt::format("{:.17e}", v);
}

// Another value than the default, of the kind that survives only exact writing.
std::string other_value(const Option<Config>& o) {
  if (o.type == "true or false") return o.value == "true" ? "false" : "true";
  if (is_words(o)) return fmt::format("\"{}\"", o.accepted.substr(o.accepted.rfind(' ') + 1));
  if (o.accepted == "cpu") return "\"cpu\"";
  if (o.type == "text") return "\"a \\\"b\\\" \\\\ \\t = # caf\xc3\xa9 " + o.key + "\"";
  const Range r = range_of(o).value();
  if (o.type == "number") return as_toml(o, r.low + std::min(1.0, r.high - r.low) / 3.0);
  return as_toml(o, std::min(r.high, r.low + 12));
}

TEST(Options, EveryDefaultRoundTrips) {
  const std::string text = config_to_toml(Config{});
  EXPECT_EQ(config_to_toml(parse_config(text, "saved").config), text);
}

TEST(Options, EveryOptionRoundTripsExactly) {
  LoadedConfig loaded;
  for (const Option<Config>& o : all_options()) {
    const bool other_length = o.key == "learner.env_steps";  // which goes without learner.updates
    if (other_length) forget_length(loaded);
    const std::string before = o.get(loaded.config), value = other_value(o);
    apply_override(loaded, o.key + "=" + value);
    if (o.accepted != "cpu") {
      EXPECT_NE(o.get(loaded.config), before) << o.key << " did not change";
    }
    const LoadedConfig from_file = parse_config(file_with(o, value), "one");
    EXPECT_EQ(from_file.origins, (Origins{{o.key, "one:3"}}));
    EXPECT_EQ(o.get(from_file.config), o.get(loaded.config)) << o.key;
    if (other_length) forget_length(loaded);
  }
  const std::string text = config_to_toml(loaded.config);
  const LoadedConfig back = parse_config(text, "saved");
  EXPECT_EQ(back.origins.size(), all_options().size()) << "an option is missing from the saved file";
  for (const Option<Config>& o : all_options()) EXPECT_EQ(o.get(back.config), o.get(loaded.config)) << o.key;
  EXPECT_EQ(config_to_toml(back.config), text);
}

TEST(Options, NumbersAreSavedToTheLastBit) {
  for (const double v : {0.1 + 0.2, 1.0 / 3.0, 1e-3 + 1e-18, 123.456789012345678, 1000.0}) {
    LoadedConfig loaded;
    loaded.config.surrogate.sigma = v;
    EXPECT_EQ(parse_config(config_to_toml(loaded.config), "saved").config.surrogate.sigma, v);
  }
}

TEST(Options, WrongTypeNamesKeyValueAcceptedAndPlace) {
  for (const Option<Config>& o : all_options()) {
    const std::string bad = o.type == "true or false" ? "1"
                            : o.type == "integer"     ? "2.5"
                            : o.type == "number"      ? "\"three\""
                            : o.type == "text"        ? "4"
                                                      : "5";
    EXPECT_TRUE(says(refusal(o, bad), {"run.toml:3: ", o.key + " = " + bad, "wanted " + o.type, o.accepted}));
    for (const char* odd : {"2024-01-02", "[1.5, 2]", "[\"x\"]", "{ a = 1 }"}) {
      EXPECT_TRUE(says(refusal(o, odd), {"run.toml:3: ", o.key + " = ", "wanted " + o.type, o.accepted}));
    }
  }
}

TEST(Options, OutOfRangeNamesKeyValueAcceptedAndPlace) {
  int ranged = 0, words = 0;
  for (const Option<Config>& o : all_options()) {
    if (const std::optional<Range> r = range_of(o)) {
      ++ranged;
      const double step = o.type == "number" ? std::max(1e-9, std::abs(r->low) * 1e-9) : 1;
      std::vector<double> bad = {r->open_low ? r->low : r->low - step, r->low - 1e6};
      if (!r->open_low) bad.insert(bad.end(), {r->high + std::max(step, r->high * 1e-9), 2 * r->high + 1e6});
      for (const double v : bad) {
        const std::string message = refusal(o, as_toml(o, v));
        EXPECT_TRUE(says(message, {"run.toml:3: ", o.key + " = ", "wanted " + o.accepted}));
        if (o.type != "number") {
          EXPECT_TRUE(says(message, {o.key + " = " + as_toml(o, v)}));
        }
      }
      // The ends themselves are accepted.
      if (!r->open_low) {
        EXPECT_EQ(refusal(o, as_toml(o, r->low)), "nothing was thrown") << o.key;
        EXPECT_EQ(refusal(o, as_toml(o, r->high)), "nothing was thrown") << o.key;
      }
    }
    if (is_words(o) || o.accepted == "cpu") {
      ++words;
      EXPECT_TRUE(
          says(refusal(o, "\"zzzzzzzz\""), {"run.toml:3: ", o.key + " = \"zzzzzzzz\"", "wanted " + o.accepted}));
    }
  }
  EXPECT_GT(ranged, 30);
  EXPECT_GT(words, 8);
}

TEST(Options, NumbersThatAreNotFiniteAreRefused) {
  for (const Option<Config>& o : all_options()) {
    if (o.type != "number") continue;
    for (const char* v : {"nan", "inf", "-inf"}) {
      EXPECT_TRUE(says(refusal(o, v), {"run.toml:3: ", o.key + " = ", "a finite number is wanted"}));
    }
  }
}

TEST(Options, EveryWordRoundTrips) {
  int words = 0;
  for (const Option<Config>& o : all_options()) {
    if (!is_words(o)) continue;
    std::istringstream list(o.accepted);  // "a, b or c"
    std::set<std::string> seen;
    for (std::string word; list >> word;) {
      if (word == "or") continue;
      if (word.ends_with(',')) word.pop_back();
      ++words;
      EXPECT_TRUE(seen.insert(word).second) << o.key << " " << word;
      LoadedConfig loaded;
      apply_override(loaded, o.key + "=" + word);
      EXPECT_EQ(o.get(loaded.config), "\"" + word + "\"");
      const std::string text = config_to_toml(loaded.config);
      EXPECT_EQ(o.get(parse_config(text, "saved").config), "\"" + word + "\"") << o.key;
    }
  }
  EXPECT_GE(words, 33);
}

TEST(Options, NearMissOfAWordIsSuggested) {
  const std::string message = message_of([] { parse_config("[surrogate]\nkernel = \"gausian\"", "f"); });
  EXPECT_TRUE(says(
      message, {"f:2: surrogate.kernel = \"gausian\"", "gaussian, laplacian or cauchy", "(did you mean gaussian?)"}));
}

TEST(Options, UnknownKeySuggestsTheNearest) {
  EXPECT_TRUE(
      says(message_of([] { parse_config("[surrogate]\n\nsigm = 1", "dir/run.toml"); }),
           {"dir/run.toml:3: unknown option surrogate.sigm (did you mean surrogate.sigma?)", "gipo list options"}));
  EXPECT_TRUE(says(message_of([] { parse_config("[run]\nxyzzyxyzzyxyzzy = 1", "f"); }), {"unknown option run.xyzzy"}));
  EXPECT_FALSE(says(message_of([] { parse_config("[run]\nxyzzyxyzzyxyzzy = 1", "f"); }), {"did you mean"}));
}

TEST(Options, UnknownGroupSuggestsTheNearestAndNamesAll) {
  const std::string message = message_of([] { parse_config("# x\n[surogate]\nsigma = 1", "f"); });
  EXPECT_TRUE(says(message, {"f:2: unknown group [surogate] (did you mean surrogate?)"}));
  for (const OptionGroup<Config>& group : option_table()) EXPECT_TRUE(says(message, {group.name}));
}

TEST(Options, KeyOutsideItsGroupSuggestsTheGroup) {
  EXPECT_TRUE(says(message_of([] { parse_config("\nsigma = 1", "f"); }),
                   {"f:2: unknown option sigma (did you mean surrogate.sigma?)"}));
  EXPECT_TRUE(says(
      message_of([] { parse_config("every_updates = 1", "f"); }),
      {"did you mean eval.every_updates or checkpoint.every_updates or log.every_updates or clone.every_updates?"}));
}

TEST(Options, TomlSyntaxErrorNamesTheLine) {
  EXPECT_TRUE(says(message_of([] { parse_config("[run]\nseed = 1\n\nname = \"open\nx", "dir/a.toml"); }),
                   {"dir/a.toml:4: not valid TOML: "}));
  EXPECT_TRUE(says(message_of([] { parse_config("[run\n", "a.toml"); }), {"a.toml:1: not valid TOML: "}));
  EXPECT_TRUE(
      says(message_of([] { parse_config("[run]\nseed = 1\nseed = 2\n", "a.toml"); }), {"a.toml:3: not valid TOML: "}));
}

TEST(Options, FileThatCannotBeReadIsNamed) {
  EXPECT_TRUE(says(message_of([] { load_config("/no/such/run.toml"); }), {"/no/such/run.toml"}));
  const std::string folder = std::filesystem::temp_directory_path().string();
  EXPECT_TRUE(says(message_of([&] { load_config(folder); }), {folder})) << "a folder is not an empty config";
}

TEST(Options, EmptyFileIsTheDefaults) {
  EXPECT_EQ(config_to_toml(parse_config("", "f").config), config_to_toml(Config{}));
}

Config with(const std::string& assignment) {
  LoadedConfig loaded;
  apply_override(loaded, assignment);
  EXPECT_EQ(loaded.origins.size(), 1u);
  EXPECT_EQ(loaded.origins.begin()->second, "--set");
  return loaded.config;
}

TEST(Options, SetTakesTomlAndBareWords) {
  EXPECT_EQ(with("surrogate.name=ppo").surrogate.name, "ppo");
  EXPECT_EQ(with("surrogate.name=\"ppo\"").surrogate.name, "ppo");
  EXPECT_EQ(with("env.id=Pendulum-v1").env.id, "Pendulum-v1");
  EXPECT_EQ(with("surrogate.sigma=0.25").surrogate.sigma, 0.25);
  EXPECT_EQ(with("surrogate.sigma=2").surrogate.sigma, 2.0) << "a whole number is a number";
  EXPECT_EQ(with("policy.hidden=[16, 8]").policy.hidden, (Widths{16, 8}));
  EXPECT_EQ(with("policy.hidden=[]").policy.hidden, Widths{});
  EXPECT_EQ(with("log.tensorboard=false").log.tensorboard, false);
  EXPECT_EQ(with("run.dir=/a b/c").run.dir, "/a b/c");
}

TEST(Options, SetKeepsEqualsSignsAndLinesOfTheValue) {
  EXPECT_EQ(with("run.name=a=b=c").run.name, "a=b=c");
  EXPECT_EQ(with("run.name=\"a=b\"").run.name, "a=b");
  // Nothing after the value can name another key.
  EXPECT_EQ(with("run.name=\"x\"\nw = 1").run.name, "\"x\"\nw = 1");
  EXPECT_EQ(with("run.name=").run.name, "");
}

TEST(Options, SetRefusesWhatAFileRefuses) {
  const auto refused = [](const std::string& assignment) {
    LoadedConfig loaded;
    std::string message = message_of([&] { apply_override(loaded, assignment); });
    EXPECT_TRUE(loaded.origins.empty());
    EXPECT_EQ(config_to_toml(loaded.config), config_to_toml(Config{})) << assignment;
    return message;
  };
  EXPECT_TRUE(says(refused("surrogate.sigma="), {"--set: surrogate.sigma = \"\"", "wanted number, 0.001 to 1000"}));
  EXPECT_TRUE(says(refused("surrogate.sigma=big"), {"--set: surrogate.sigma = \"big\"", "wanted number"}));
  EXPECT_TRUE(says(refused("surrogate.sigma=-1"), {"--set: surrogate.sigma = -1", "wanted 0.001 to 1000"}));
  EXPECT_TRUE(says(refused("policy.hidden=[0]"), {"--set: policy.hidden = [0]", "wanted 1 to 65536"}));
  EXPECT_TRUE(says(refused("policy.hidden=16"), {"--set: policy.hidden = 16", "wanted list of integers"}));
  EXPECT_TRUE(
      says(refused("surrogate.sigm=1"), {"--set: unknown option surrogate.sigm (did you mean surrogate.sigma?)"}));
  EXPECT_TRUE(says(refused("surrogate=1"), {"--set: unknown option surrogate"}));
  EXPECT_TRUE(says(refused("surrogate.sigma"), {"--set surrogate.sigma: wanted group.name=value"}));
  EXPECT_TRUE(says(refused("=1"), {"wanted group.name=value"}));
  EXPECT_TRUE(says(refused(""), {"wanted group.name=value"}));
}

TEST(Options, ThoseOfTheTaskAreKeptAsGivenWithTheirPlace) {
  LoadedConfig loaded =
      parse_config("[env]\nid = \"Ant-v5\"\n[env.options]\nwhole = 2\npair = [1, inf]\nfile = 'a'\nflag = true", "f");
  const OptionValues given = {{"whole", std::int64_t{2}},
                              {"pair", Nested{Nested::Kind::kList, {{"", std::int64_t{1}}, {"", HUGE_VAL}}}},
                              {"file", std::string("a")},
                              {"flag", true}};
  EXPECT_EQ(loaded.config.env_options, given);
  EXPECT_EQ(origin_of(loaded.origins, "env.options.pair"), "f:5");
  apply_override(loaded, "env.options.whole=3.5");
  apply_override(loaded, "env.options.strange key=x");
  EXPECT_EQ(std::get<double>(loaded.config.env_options.at("whole")), 3.5);
  EXPECT_EQ(origin_of(loaded.origins, "env.options.whole"), "--set");
  const std::string text = config_to_toml(loaded.config);
  EXPECT_EQ(parse_config(text, "saved").config.env_options, loaded.config.env_options);

  EXPECT_TRUE(says(message_of([] { parse_config("[env.options]\na = 2024-01-02", "f"); }),
                   {"f:2: env.options.a = 2024-01-02 is not accepted: wanted true or false, a number"}));
  EXPECT_TRUE(says(message_of([] { parse_config("[env.options]\n\"a.b\" = 1", "f"); }), {"f:2", "without a dot"}));
  EXPECT_TRUE(says(message_of([] { parse_config("[env]\noptions = 3", "f"); }), {"f:2: unknown option env.options"}));
  EXPECT_TRUE(says(message_of([&] { apply_override(loaded, "env.options.a=\xff"); }), {"text in UTF-8 is wanted"}));
  set_option(loaded, "env.options.b", std::vector<double>{0.5}, "here");
  EXPECT_EQ(loaded.config.env_options.at("b"), OptionValue(std::vector<double>{0.5}));
  EXPECT_EQ(origin_of(loaded.origins, "env.options.b"), "here");
  EXPECT_TRUE(says(message_of([&] { set_option(loaded, "env.options.b", "\xff", "here"); }), {"here: the value of"}));
}

TEST(Options, LaterSettingWins) {
  LoadedConfig loaded = parse_config("[surrogate]\nsigma = 0.25", "f");
  EXPECT_EQ(origin_of(loaded.origins, "surrogate.sigma"), "f:2");
  EXPECT_EQ(origin_of(loaded.origins, "surrogate.name"), "default");
  apply_override(loaded, "surrogate.sigma=1");
  apply_override(loaded, "surrogate.sigma=2");
  EXPECT_EQ(loaded.config.surrogate.sigma, 2.0);
  EXPECT_EQ(origin_of(loaded.origins, "surrogate.sigma"), "--set");
}

TEST(Options, KeysAreUniqueAndPageHoldsAll) {
  const std::string page = options_page();
  std::map<std::string, int> seen;
  for (const Option<Config>& o : all_options()) {
    EXPECT_EQ(++seen[o.key], 1) << o.key;
    EXPECT_FALSE(o.help.empty()) << o.key;
    EXPECT_NE(page.find("| `" + o.key + "` | "), std::string::npos) << o.key;
  }
}

}  // namespace
}  // namespace gipo
