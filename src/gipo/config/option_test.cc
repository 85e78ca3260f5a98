#include "gipo/config/option.h"

#include <gtest/gtest.h>

#include "gipo/config/group_text.h"
#include "gipo/config/make_option.h"
#include "gipo/core/error.h"
#include "gipo/core/message_of.h"

namespace gipo {

enum class Colour { kRed, kGreen, kBlue };
template <>
inline constexpr auto kWords<Colour> =
    std::to_array<Word<Colour>>({{Colour::kGreen, "green"}, {Colour::kRed, "red"}, {Colour::kBlue, "blue"}});

struct PaintOptions {
  Colour colour = Colour::kRed;
  Maybe<Colour> edge;
  double width = 1;
  std::string name = "a";
};
template <>
const OptionGroup<PaintOptions>& group_of<PaintOptions>() {
  static const OptionGroup<PaintOptions> made = [] {
    OptionGroup<PaintOptions> table{"paint", "A group of no run.", {}};
    add_option(table, "colour", &PaintOptions::colour, accepted::any(), "Of the whole.");
    add_option(table, "edge", &PaintOptions::edge, accepted::any(), "Of the edge; unset: none.");
    add_option(table, "width", &PaintOptions::width, accepted::range(0, 4), "In points.");
    add_option(table, "name", &PaintOptions::name, accepted::any(), "For people.");
    return table;
  }();
  return made;
}

namespace {

const Option<PaintOptions>& option(std::size_t i) { return group_of<PaintOptions>().options.at(i); }

std::string refusal(std::size_t i, const OptionValue& value) {
  PaintOptions paint;
  return message_of([&] { option(i).set(paint, value, "here"); });
}

TEST(Words, AreReadAndWrittenFromOneArray) {
  for (const auto& [value, text] : kWords<Colour>) {
    EXPECT_STREQ(word_of(value), text);
    EXPECT_EQ(read_word<Colour>(text), value);
  }
  EXPECT_EQ(read_word<Colour>("redd"), std::nullopt);
  EXPECT_EQ(read_word<Colour>(""), std::nullopt);
  EXPECT_THROW(word_of(static_cast<Colour>(7)), InvariantError);
}

TEST(Option, AnEnumIsSaidAsItsWords) {
  EXPECT_EQ(option(0).key, "paint.colour");
  EXPECT_EQ(option(0).type, "text");
  EXPECT_EQ(option(0).value, "\"red\"");
  EXPECT_EQ(option(0).accepted, "green, red or blue") << "in the order of the array, not of the enum";
  EXPECT_EQ(option(1).value, "unset");
  EXPECT_EQ(option(1).accepted, option(0).accepted);
}

TEST(Option, EveryWordOfAnEnumRoundTrips) {
  for (const auto& [value, text] : kWords<Colour>) {
    PaintOptions paint;
    for (const std::size_t i : {0, 1}) {
      option(i).set(paint, std::string(text), "here");
      EXPECT_EQ(option(i).get(paint), "\"" + std::string(text) + "\"");
    }
    EXPECT_EQ(paint.colour, value);
    EXPECT_EQ(paint.edge, value);
  }
}

TEST(Option, AnUnknownWordNamesAllAndTheNearest) {
  const std::string wanted = "wanted green, red or blue";
  EXPECT_EQ(refusal(0, "gren"), "here: paint.colour = \"gren\" is not accepted: " + wanted + " (did you mean green?)");
  EXPECT_EQ(refusal(1, "ultramarine"), "here: paint.edge = \"ultramarine\" is not accepted: " + wanted);
  EXPECT_EQ(refusal(0, std::int64_t{1}), "here: paint.colour = 1 is not accepted: wanted text, green, red or blue");
  PaintOptions paint;
  EXPECT_THROW(option(0).set(paint, "gren", "here"), Error);
  EXPECT_EQ(paint.colour, Colour::kRed) << "a refused value changes nothing";
}

TEST(Option, AGroupIsSetInsideTheWhole) {
  struct Whole {
    int before = 0;
    PaintOptions paint;
  };
  const OptionGroup<Whole> group = inside(group_of<PaintOptions>(), &Whole::paint);
  EXPECT_EQ(group.name, "paint");
  Whole whole;
  const Option<Whole>& edge = find_option<Whole>({&group, 1}, "paint.edge", "here");
  EXPECT_EQ(edge.help, option(1).help);
  EXPECT_EQ(edge.get(whole), "");
  edge.set(whole, "blue", "here");
  EXPECT_EQ(whole.paint.edge, Colour::kBlue);
  EXPECT_EQ(edge.get(whole), "\"blue\"");
  EXPECT_EQ(message_of([&] {
              find_option<Whole>({&group, 1}, "paint.edg", "here");
            }),
            "here: unknown option paint.edg (did you mean paint.edge?); `gipo list options` shows all");
}

TEST(GroupText, WritesWhatIsSetAndReadsItBack) {
  PaintOptions paint;
  EXPECT_EQ(group_to_text(paint), "paint.colour = \"red\"\npaint.width = 1.0\npaint.name = \"a\"\n");
  paint = {Colour::kBlue, Colour::kGreen, 0.1, "x = \"y\"\n"};
  const auto back = group_from_text<PaintOptions>(group_to_text(paint), "f");
  EXPECT_EQ(back.colour, paint.colour);
  EXPECT_EQ(back.edge, paint.edge);
  EXPECT_EQ(back.width, paint.width);
  EXPECT_EQ(back.name, paint.name);
  EXPECT_EQ(group_to_text(group_from_text<PaintOptions>("", "f")), group_to_text(PaintOptions{}));
}

TEST(GroupText, WhatItDoesNotKnowIsNamedWithItsLine) {
  const auto refused = [](const char* text) { return message_of([&] { group_from_text<PaintOptions>(text, "f"); }); };
  EXPECT_EQ(refused("\npaint.width = 5"), "f:2: paint.width = 5.0 is not accepted: wanted 0 to 4");
  EXPECT_EQ(refused("paint.width = 2024-01-02"),
            "f:1: paint.width = 2024-01-02 is not accepted: wanted number, 0 to 4");
  EXPECT_EQ(refused("paint.with = 1"),
            "f:1: unknown option paint.with (did you mean paint.width?); `gipo list options` shows all");
  EXPECT_EQ(refused("width = 1"),
            "f:1: unknown option width (did you mean paint.width?); `gipo list options` shows all");
  EXPECT_EQ(refused("other.width = 1").find("f:1: unknown option other.width"), 0u);
  EXPECT_EQ(refused("paint.width = ").find("f:1: not valid TOML: "), 0u);
}

}  // namespace
}  // namespace gipo
