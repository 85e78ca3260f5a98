#include "gipo/env/env_options.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gipo/core/error.h"
#include "gipo/plan/config_file.h"

namespace gipo {
namespace {

std::vector<EnvOption> known() {
  EnvOption body{"main_body", std::int64_t{1}, "", 0};
  body.or_text = true;
  return {{"weight", 0.5, ""},
          {"frame_skip", std::int64_t{5}, "", 1},
          {"noise", 0.1, "", 0},
          {"terminate", true, ""},
          {"z_range", std::vector<double>{0.2, 1}, ""},
          {"file", std::string("a.xml"), ""},
          body};
}

OptionValues resolved(const std::string& toml) {
  return resolve_options("Task-v0", known(), parse_config("[env.options]\n" + toml, "f").config.env_options);
}

std::string refusal(const std::string& toml) {
  try {
    resolved(toml);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing thrown";
}

TEST(EnvOptions, AllAreThereEachOfItsOwnType) {
  const OptionValues all = resolved("weight = 2\nz_range = [1, inf]\nmain_body = \"torso\"\n");
  EXPECT_EQ(all.size(), known().size());
  EXPECT_EQ(std::get<double>(all.at("weight")), 2.0) << "a whole number is a number";
  EXPECT_EQ(std::get<std::vector<double>>(all.at("z_range")), (std::vector<double>{1, HUGE_VAL}));
  EXPECT_EQ(std::get<std::vector<double>>(resolved("z_range = [1, 2]").at("z_range")), (std::vector<double>{1, 2}));
  EXPECT_EQ(std::get<std::string>(all.at("main_body")), "torso");
  EXPECT_EQ(std::get<std::int64_t>(all.at("frame_skip")), 5);
  EXPECT_EQ(std::get<bool>(all.at("terminate")), true);
}

TEST(EnvOptions, WhatIsNotAcceptedIsNamed) {
  EXPECT_EQ(refusal("weigth = 1"),
            "env.options.weigth is not an option of Task-v0 (did you mean weight?); it has weight, frame_skip, noise, "
            "terminate, z_range, file, main_body");
  EXPECT_EQ(refusal("frame_skip = 0"),
            "env.options.frame_skip = 0 is not accepted: Task-v0 wants integer, 1 to 1000000");
  EXPECT_EQ(refusal("noise = -0.5"), "env.options.noise = -0.5 is not accepted: Task-v0 wants number, 0 or more");
  for (const char* bad : {"weight = inf", "weight = nan", "weight = \"x\"", "weight = true", "frame_skip = 1.5",
                          "frame_skip = 100000000000", "terminate = 1", "z_range = [2, 1]", "z_range = [nan, 1]",
                          "z_range = [1]", "z_range = 3", "file = 3", "main_body = -1", "main_body = 0.5"}) {
    EXPECT_NE(refusal(bad).find("is not accepted: Task-v0 wants"), std::string::npos) << bad << ": " << refusal(bad);
  }
  try {
    resolve_options("Bare-v0", {}, {{"x", true}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "env.options.x is not an option of Bare-v0; it has none");
  }
}

}  // namespace
}  // namespace gipo
