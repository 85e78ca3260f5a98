#include "gipo/plan/zoo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "gipo/core/message_of.h"
#include "gipo/plan/presets.h"

namespace gipo {
namespace {

std::string in_small_letters(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

TEST(Zoo, EveryEntryIsAPresetAndItsFiguresFitEachOther) {
  const std::vector<ZooEntry> entries = zoo();
  ASSERT_GT(entries.size(), 10u);
  for (const ZooEntry& entry : entries) {
    SCOPED_TRACE(entry.task);
    const Config config = load_config_or_preset(entry.preset()).config;
    EXPECT_GT(entry.env_steps, 0);
    // The part after the kind of a bridged task, and what stands before a word of ours such as "continuous". Packages are
    // written in small letters.
    EXPECT_NE(in_small_letters(config.env.id).find(in_small_letters(entry.task.substr(0, 6))), std::string::npos)
        << config.env.id;
    if (!entry.measured) continue;
    EXPECT_GT(entry.measured->seeds, 0);
    EXPECT_LE(entry.measured->worst, entry.measured->mean);
    EXPECT_GT(entry.measured->mean, entry.goal.value_or(-1e9));
  }
}

TEST(Zoo, FiguresComeFromTheComment) {
  const std::vector<ZooEntry> entries = zoo();
  const auto found = std::ranges::find(entries, "Hopper-v5", &ZooEntry::task);
  ASSERT_NE(found, entries.end());
  EXPECT_EQ(found->env_steps, 499712);
  EXPECT_EQ(found->measured->seeds, 5);
  EXPECT_DOUBLE_EQ(found->rl_zoo->mean, 2410.435);
  EXPECT_NE(zoo_as_json().find("\"worst\": 2118.1"), std::string::npos);
}

TEST(Zoo, AnUnknownTaskNamesTheOthers) {
  const std::string message = message_of([] { zoo_preset("Hopper-v4"); });
  EXPECT_NE(message.find("--zoo: Hopper-v4 is not in the zoo (did you mean Hopper-v5?); there are: "),
            std::string::npos)
      << message;
  EXPECT_EQ(zoo_preset("Hopper-v5"), "zoo/Hopper-v5");
}

}  // namespace
}  // namespace gipo
