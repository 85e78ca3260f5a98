#include "gipo/io/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gipo/core/error.h"

namespace gipo {
namespace {

template <class Json>
std::string refusal(const std::string& text, const JsonLimits& limits = {}) {
  try {
    parse_json<Json>(text, "f.json", limits);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

template <class Json>
class JsonText : public testing::Test {};
using Both = testing::Types<nlohmann::json, nlohmann::ordered_json>;
TYPED_TEST_SUITE(JsonText, Both);

TYPED_TEST(JsonText, IsWhatTheLibraryReads) {
  for (const char* text : {"null", "true", "-3", "18446744073709551615", "2.5e-3", R"("a\n\u00e4")", "[]", "{}",
                           R"([1,[2,{"a":[]}],{}])", R"({"b":{"c":[1,2],"a":null},"a":[{"b":1},{"b":2}],"c":""})"}) {
    EXPECT_EQ(parse_json<TypeParam>(text, "f").dump(), TypeParam::parse(text).dump()) << text;
  }
}

TYPED_TEST(JsonText, FaultsAreNamed) {
  EXPECT_EQ(refusal<TypeParam>("{\n\"a\": ,}"), "f.json:2: not valid JSON");
  EXPECT_EQ(refusal<TypeParam>(""), "f.json:1: not valid JSON");
  EXPECT_EQ(refusal<TypeParam>("[1] 2"), "f.json:1: not valid JSON");
  EXPECT_EQ(refusal<TypeParam>(R"({"a": {"b": [1, 1e999]}})"),
            "f.json: a: b: 1e999 is not accepted: a finite number is wanted");
  EXPECT_EQ(refusal<TypeParam>(R"({"a": {"b": 1, "c": 2, "b": 3}})"), "f.json: a: the key b stands there twice");
  EXPECT_EQ(refusal<TypeParam>(R"([{"a": 1}, {"a": 2}])"), "accepted");
}

TYPED_TEST(JsonText, SizeAndDepthAreLimited) {
  EXPECT_EQ(refusal<TypeParam>("[[[]]]", {100, 3}), "accepted");
  EXPECT_EQ(refusal<TypeParam>("[[[[]]]]", {100, 3}), "f.json: lists and objects more than 3 deep");
  EXPECT_EQ(refusal<TypeParam>(R"({"a":{"b":{"c":{}}}})", {100, 3}),
            "f.json: a: b: c: lists and objects more than 3 deep");
  EXPECT_EQ(refusal<TypeParam>("[1, 2, 3]", {5, 3}), "f.json: 9 bytes of JSON: at most 5 are read");
  // The first bracket too many ends it: what follows is not even read, so that it need not be JSON.
  EXPECT_EQ(refusal<TypeParam>(std::string(33, '[') + "no JSON"), "f.json: lists and objects more than 32 deep");
}

}  // namespace
}  // namespace gipo
