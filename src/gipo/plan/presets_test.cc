#include "gipo/plan/presets.h"

#include <gtest/gtest.h>

#include <fstream>

#include "gipo/core/error.h"
#include "gipo/core/message_of.h"
#include "gipo/io/temporary_folder.h"
#include "gipo/plan/built_in_presets.h"
#include "gipo/plan/option_table.h"

namespace gipo {
namespace {

TEST(Presets, AreThoseOfTheCheckoutAndBuiltInAlike) {
  const std::vector<PresetConfig> here = preset_configs(), built_in = built_in_presets();
  ASSERT_EQ(here.size(), built_in.size());
  ASSERT_GT(here.size(), 10u);
  for (std::size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(here[i].name, built_in[i].name);
    EXPECT_EQ(here[i].text, built_in[i].text);
    EXPECT_GT(here[i].about().size(), 20u) << here[i].name;
    EXPECT_TRUE(here[i].about().ends_with('.')) << here[i].name;
    EXPECT_NO_THROW(load_config_or_preset(here[i].name)) << here[i].name;
  }
}

TEST(Presets, SayWhatTheyAreInTheFirstSentenceOfTheirComment) {
  EXPECT_EQ((PresetConfig{"a", "# One 0.5 sentence\n# over two lines. Another.\n[env]\n"}.about()),
            "One 0.5 sentence over two lines.");
  EXPECT_EQ((PresetConfig{"a", "# No end\n\n# other"}.about()), "No end");
  EXPECT_EQ((PresetConfig{"a", "[env]\n# inside\n"}.about()), "");
}

TEST(Presets, AFileThatIsThereComesFirst) {
  const TemporaryFolder folder;
  std::ofstream(folder / "mine.toml") << "[learner]\nupdates = 17\n";
  EXPECT_EQ(load_config_or_preset(folder / "mine.toml").config.learner.updates, 17);
}

TEST(Presets, MistakesNameThePresetsAndThePlace) {
  const std::string unknown = message_of([] { load_config_or_preset("configs/classic/stal.toml"); });
  EXPECT_NE(unknown.find("configs/classic/stal.toml: there is no such file"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("did you mean classic/stale?"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("mujoco/stale"), std::string::npos) << unknown;
  LoadedConfig loaded = load_config_or_preset("classic/stale");
  EXPECT_TRUE(loaded.origins.at("env.id").starts_with("preset classic/stale:")) << loaded.origins.at("env.id");
}

}  // namespace
}  // namespace gipo
