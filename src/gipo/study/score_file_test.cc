#include "gipo/study/score_file.h"

#include <gtest/gtest.h>

#include "gipo/core/error.h"

namespace gipo {
namespace {

std::string refusal(const std::string& text, const std::string& name) {
  try {
    parse_scores(text, name);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(ScoreFile, JsonKeepsOrderAndScales) {
  const ScoreFile file = parse_scores(R"({"scores": {"b": {"t2": [1, 2], "t1": [3]}, "a": {"t1": [4], "t2": [5]}},
    "scales": {"t1": {"random": 0, "reference": 10}, "t2": {"random": -1, "reference": 1}}})",
                                      "s.json");
  EXPECT_EQ(file.table.methods, (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(file.table.tasks, (std::vector<std::string>{"t2", "t1"}));
  EXPECT_EQ(file.table.scores[0], (TaskScores{{1, 2}, {3}}));
  EXPECT_EQ(file.table.scores[1], (TaskScores{{5}, {4}}));
  ASSERT_EQ(file.scales.size(), 2u);
  EXPECT_EQ(file.scales[0].zero, -1);
  EXPECT_EQ(file.scales[1].one, 10);
}

TEST(ScoreFile, CsvFindsItsColumnsByName) {
  const ScoreFile file =
      parse_scores("seed,task,score,method\r\n1,t,2.5,\"GIPO 0.5, one-sided\"\n\n2,t,-1e3,b\n", "s.csv");
  EXPECT_EQ(file.table.methods, (std::vector<std::string>{"GIPO 0.5, one-sided", "b"}));
  EXPECT_EQ(file.table.scores[1], (TaskScores{{-1000}}));
  EXPECT_TRUE(file.scales.empty());
}

TEST(ScoreFile, ByteOrderMarkIsPassedOver) {
  const ScoreFile csv = parse_scores("\xef\xbb\xbfmethod,task,score\na,t,1\n", "s.csv");
  EXPECT_EQ(csv.table.methods, (std::vector<std::string>{"a"}));
  const ScoreFile json = parse_scores("\xef\xbb\xbf{\"scores\": {\"a\": {\"t\": [1]}}}", "s.json");
  EXPECT_EQ(json.table.scores[0], (TaskScores{{1}}));
}

TEST(ScoreFile, MistakesAreNamedWithTheirPlace) {
  const auto says = [](const std::string& text, const std::string& name, const std::string& part) {
    const std::string why = refusal(text, name);
    EXPECT_NE(why.find(part), std::string::npos) << why;
  };
  says("{\n\n\"scores\": {,}}", "s.json", "s.json:3: not valid JSON");
  says(R"({"score": {}})", "s.json", "unknown key score (did you mean scores?)");
  says(R"({"scores": {}})", "s.json", "no scores there");
  says(R"({"scores": {"a": {"t": [1]}, "b": {"u": [1]}}})", "s.json", "method a has no score for task u");
  says(R"({"scores": {"a": {"t": ["x"]}}})", "s.json", "scores: a: t: wanted a number");
  says(R"({"scores": {"a": {"t": [1]}}, "scales": {}})", "s.json", "scales: t: missing");
  says(R"({"scores": {"a": {"t": [1]}}, "scales": {"t": {"random": 0, "reference": 1}, "u": {}}})", "s.json",
       "no scores for task u");
  says("method,task\na,b\n", "s.csv", "s.csv:1: no column score");
  says(R"({"scores": {"a": {"t": [1, 1e999]}}})", "s.json", "s.json: scores: a: t: 1e999 is not accepted: a finite");
  says(R"({"scores": {"a": {"t": [1]}, "a": {"t": [2]}}})", "s.json", "s.json: scores: the key a stands there twice");
  says(R"({"scores": {"a": {"t": [1], "t": [2]}}})", "s.json", "scores: a: the key t stands there twice");
  says(std::string(8'000'000, '['), "s.json", "s.json: lists and objects more than 8 deep");
  says("method,task,score\na,b,1x\n", "s.csv", "s.csv:2: score = \"1x\": wanted a number");
  says("method,task,score\na,b,0x10\n", "s.csv", "s.csv:2: score = \"0x10\": wanted a number");
  says("method,task,score\na,b,inf\n", "s.csv", "s.csv:2: score = inf: a score is not finite");
  says("method,task,score\na,b,1e999\n", "s.csv", "s.csv:2: score = 1e999: a score is not finite");
  says("method,task,score\na,b\n", "s.csv", "s.csv:2: 2 cells are too few");
}

}  // namespace
}  // namespace gipo
