#include "gipo/config/path_text.h"

#include <gtest/gtest.h>

namespace gipo {
namespace {

TEST(PathText, FaultsAreThoseOfFileSystems) {
  EXPECT_EQ(name_fault("CartPole-v1"), "");
  EXPECT_EQ(name_fault(std::string(200, 'a')), "");
  EXPECT_EQ(name_fault(std::string(201, 'a')), "a name of at most 200 bytes is wanted");
  EXPECT_EQ(name_fault(std::string("a\0b", 3)), "a name without a zero byte is wanted");
  std::string path = "/";
  while (path.size() + 11 <= 3800) path += "0123456789/";
  EXPECT_EQ(path_fault(path), "");
  EXPECT_EQ(path_fault(path + path), "a path of at most 3800 bytes is wanted");
  EXPECT_EQ(path_fault("runs/" + std::string(255, 'a') + "/b"), "");
  EXPECT_EQ(path_fault("runs/" + std::string(256, 'a') + "/b"), "each name in a path has at most 255 bytes");
  EXPECT_EQ(path_fault(std::string("a/\0", 3)), "a path without a zero byte is wanted");
}

TEST(PathText, LongTextsAreShortened) {
  EXPECT_EQ(shown_text("a b"), "\"a b\"");
  EXPECT_EQ(shown_text(std::string("a\0b", 3)), "\"a\\u0000b\"");
  EXPECT_EQ(shown_text(std::string(300, 'a')), "\"" + std::string(40, 'a') + "\"... (300 bytes)");
  std::string wide = "a";
  for (int i = 0; i < 50; ++i) wide += "\u00e4";
  EXPECT_EQ(shown_text(wide), "\"" + wide.substr(0, 39) + "\"... (101 bytes)");
}

}  // namespace
}  // namespace gipo
