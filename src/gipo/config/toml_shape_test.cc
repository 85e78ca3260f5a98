#include "gipo/config/toml_shape.h"

#include <gtest/gtest.h>

#include <vector>

#include "gipo/config/toml_nodes.h"
#include "gipo/core/error.h"

namespace gipo {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_toml(text, "f.toml");
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

std::string repeated(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

TEST(TomlShape, LargeFilesAreRead) {
  std::string text;
  for (int i = 0; text.size() < 2'000'000; ++i) text += "key" + std::to_string(i) + " = [1.5, 2.5, 3.5]  # a. b. c.\n";
  EXPECT_EQ(refusal(text), "accepted");
  EXPECT_EQ(refusal("a = \"" + repeated("x.[{", 500'000) + "\"\n"), "accepted");
  EXPECT_EQ(refusal("a = 1\n" + std::string(kMostTomlBytes, ' ')),
            "f.toml: 16777222 bytes are no config: at most 16777216 are read");
}

TEST(TomlShape, DepthIsLimited) {
  EXPECT_EQ(refusal("a = " + repeated("[", 32) + repeated("]", 32)), "accepted");
  EXPECT_EQ(refusal("\na = " + repeated("[", 33) + repeated("]", 33)), "f.toml:2: lists and tables more than 32 deep");
  EXPECT_EQ(refusal("a = " + repeated("{b=", 1000)), "f.toml:1: lists and tables more than 32 deep");
  EXPECT_EQ(refusal(repeated("a.", 31) + "a = 1"), "accepted");
  EXPECT_EQ(refusal(repeated("a.", 32) + "a = 1"), "f.toml:1: keys of more than 32 parts are not accepted");
  EXPECT_EQ(refusal("[" + repeated("a . ", 5000) + "a]"), "f.toml:1: keys of more than 32 parts are not accepted");
  EXPECT_EQ(refusal(repeated("\"a\".", 32) + "a = 1"), "f.toml:1: keys of more than 32 parts are not accepted");
  EXPECT_EQ(refusal("a = [" + repeated("{b = [1.5]}, ", 1000) + "]"), "accepted");
}

TEST(TomlShape, KeysWithDotsAreCounted) {
  std::string keys, headings;
  for (int i = 0; i < 20'001; ++i) {
    keys += "k" + std::to_string(i) + ".a = 1.5\n";
    headings += "[h" + std::to_string(i) + ".a]\n";
  }
  const std::string why = "f.toml:20001: more than 20000 keys with a dot are not accepted";
  EXPECT_EQ(refusal(keys).substr(0, why.size()), why);
  EXPECT_EQ(refusal(headings).substr(0, why.size()), why);
  keys.resize(keys.rfind("k20000"));
  EXPECT_EQ(refusal(keys), "accepted");
}

// What stands in quotes or comments counts for nothing, and what follows them is seen.
TEST(TomlShape, QuotesEndWhereTomlEndsThem) {
  const std::string deep = repeated("[", 33), why = "lists and tables more than 32 deep";
  for (const std::string& text : std::vector<std::string>{"\"a\"", "'a'", "\"\"", "''", R"("a\"b")", R"('a\')",
                                                          R"("""a""")", R"("""a""""")", R"("""a"b""c\"""")", "'''a'''",
                                                          "'''a'b'''''", "\"\"\"a\nb\"\"\"", "1 # \"", "1 # '''"}) {
    EXPECT_EQ(refusal("a = " + text + "\nb = 1\n"), "accepted") << text;
    std::string two = "a = ";
    two.append(text).append("\nb = ").append(deep);
    EXPECT_NE(refusal(two).find(why), std::string::npos) << text;
  }
  for (const std::string& text :
       std::vector<std::string>{"\"" + deep + "\"", "'" + deep + "'", "'''\"" + deep + "'''", "1 #" + deep}) {
    EXPECT_EQ(refusal("a = " + text + "\n"), "accepted") << text;
  }
}

}  // namespace
}  // namespace gipo
