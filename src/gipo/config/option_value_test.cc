#include "gipo/config/option_value.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gipo/core/error.h"
#include "gipo/plan/config_file.h"
#include "gipo/plan/option_table.h"

namespace gipo {
namespace {

OptionValue table(std::vector<NestedItem> items) { return Nested{Nested::Kind::kTable, std::move(items)}; }
OptionValue list(std::vector<NestedItem> items) { return Nested{Nested::Kind::kList, std::move(items)}; }

const OptionValue kWhole = std::int64_t{1};
const OptionValue kDeep = table({{"z", kWhole},
                                 {"a b", list({{"", Nested{}}, {"", true}, {"", table({})}})},
                                 {"", 0.5},
                                 {"none", std::string("@none")},
                                 {"text", std::string("none\n\"")}});

OptionValue read(const std::string& toml) {
  return parse_config("[env.options]\nv = " + toml, "f").config.env_options.at("v");
}

TEST(OptionValue, AListIsOfTheFirstKindThatHoldsIt) {
  EXPECT_EQ(list_value({kWhole, kWhole}), OptionValue(Widths{1, 1}));
  EXPECT_EQ(list_value({0.5, 1.0}), OptionValue(std::vector<double>{0.5, 1}));
  EXPECT_EQ(list_value({}), OptionValue(Widths{}));
  EXPECT_EQ(list_value({kWhole, 1.0}), list({{"", kWhole}, {"", 1.0}}));
  EXPECT_EQ(list_value({true}), list({{"", true}}));
}

TEST(OptionValue, TomlAndBackIsTheSame) {
  EXPECT_EQ(to_toml(kDeep),
            R"({z = 1, "a b" = ["@none", true, {}], "" = 0.5, none = "@@none", text = "none\u000a\""})");
  for (const OptionValue& value :
       {kDeep, OptionValue(Nested{}), OptionValue(std::string("@none")), OptionValue(std::string("@@@none")),
        OptionValue(std::string("none")), OptionValue(std::string("x@none")), OptionValue(1.0), list({}),
        OptionValue(Widths{}), OptionValue(std::vector<double>{1, -HUGE_VAL})}) {
    EXPECT_EQ(read(to_toml(value)), value == list({}) ? OptionValue(Widths{}) : value) << to_toml(value);
    LoadedConfig loaded;
    apply_override(loaded, "env.options.v=" + to_toml(value));
    EXPECT_EQ(parse_config(config_to_toml(loaded.config), "saved").config.env_options, loaded.config.env_options);
  }
}

TEST(OptionValue, TextOfOtherOptionsIsWhatItSays) {
  LoadedConfig loaded;
  apply_override(loaded, "run.name=@none");
  EXPECT_EQ(loaded.config.run.name, "@none");
  EXPECT_EQ(parse_config(config_to_toml(loaded.config), "saved").config.run.name, "@none");
}

TEST(OptionValue, JsonIsThatOfPython) {
  EXPECT_EQ(to_json(kDeep), R"({"z": 1, "a b": [null, true, {}], "": 0.5, "none": "@none", "text": "none\n\""})");
  EXPECT_EQ(to_json(std::vector<double>{1, HUGE_VAL, -HUGE_VAL, std::nan("")}), "[1.0, Infinity, -Infinity, NaN]");
  EXPECT_EQ(to_json(Widths{1, -2}), "[1, -2]");
}

TEST(OptionValue, KeysKeepTheOrderOfTheFile) {
  const OptionValues all =
      parse_config(
          "[env.options.c]\nz = 1\nb.y = 2\nb.x = 3\na = {q = 1, p = 2}\n[env.options.c.aa]\n[env.options.c.A]", "f")
          .config.env_options;
  EXPECT_EQ(to_toml(all.at("c")), R"({z = 1, b = {y = 2, x = 3}, a = {q = 1, p = 2}, aa = {}, "A" = {}})");
}

TEST(OptionValue, ADotLeadsIntoATable) {
  LoadedConfig loaded = parse_config("[env.options]\nc = {z = 1, b = {y = 2}}", "f");
  set_option(loaded, "env.options.c.b.y", true, "here");
  set_option(loaded, "env.options.c.b.x", Nested{}, "here");
  set_option(loaded, "env.options.d.e", kWhole, "there");
  EXPECT_EQ(to_toml(loaded.config.env_options.at("c")), R"({z = 1, b = {y = true, x = "@none"}})");
  EXPECT_EQ(to_toml(loaded.config.env_options.at("d")), "{e = 1}");
  EXPECT_EQ(origin_of(loaded.origins, "env.options.c"), "here");
  EXPECT_EQ(origin_of(loaded.origins, "env.options.d"), "there");
  const OptionValues before = loaded.config.env_options;
  EXPECT_THROW(set_option(loaded, "env.options.c.z.a", true, "here"), Error);
  EXPECT_EQ(loaded.config.env_options, before);
}

TEST(OptionValue, DepthIsBounded) {
  EXPECT_EQ(depth_of(kWhole), 0u);
  EXPECT_EQ(depth_of(Widths{}), 1u);
  EXPECT_EQ(depth_of(kDeep), 3u);
  const auto nested = [](std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  EXPECT_EQ(depth_of(read(nested(kMostLevels))), kMostLevels);
  EXPECT_THROW(read(nested(kMostLevels + 1)), Error);
  EXPECT_THROW(read(nested(250)), Error);
  std::string dots = "[env.options]\na";
  for (int i = 0; i < 8000; ++i) dots += ".b";
  EXPECT_THROW(parse_config(dots + " = 1", "f"), Error);
  LoadedConfig loaded;
  set_option(loaded, "env.options.a.b", read(nested(kMostLevels - 1)), "here");
  EXPECT_THROW(set_option(loaded, "env.options.a.b.c", read(nested(kMostLevels - 1)), "here"), Error);
}

}  // namespace
}  // namespace gipo
