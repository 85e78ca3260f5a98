// Suite files, their results, and tables of scores in both formats: refused with an Error or whole.
#include <filesystem>
#include <string>
#include <vector>

#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/stats/bootstrap.h"
#include "gipo/study/score_file.h"
#include "gipo/study/suite_results.h"
#include "gipo/study/tune.h"

namespace {

constexpr const char* kFolder = "/tmp/gipo_fuzz_suite";

}  // namespace

std::vector<std::string> valid_inputs() {
  return {
      "[suite]\nname = \"s\"\nconfig = \"base.toml\"\nseeds = [1, 2]\nlearner.updates = 100\n"
      "[[task]]\nname = \"CartPole-v1\"\nrandom = 22\nreference = 500\nthreshold = 475\n"
      "[[task]]\nname = \"pole\"\nenv.id = \"Pendulum-v1\"\n"
      "[[method]]\nname = \"PPO 0.2\"\nsurrogate = {name = \"ppo\", epsilon = 0.2}\n"
      "[[method]]\nname = \"GIPO\"\nsurrogate.sigma = 0.5\n"
      "[[regime]]\nname = \"stale\"\nconfig = \"base.toml\"\n[[regime]]\nname = \"x\"\nlearner.kl_coef = 0.1\n",
      "[suite]\nname = \"s\"\nconfig = \"base.toml\"\nseeds = [1]\n[tune]\nseeds = [11, 12]\ncandidates = 3\n"
      "first_seeds = 1\nkeep = 0.5\nscore = \"mean\"\ngrid.learner.policy_lr = [1e-4, 1e-3]\n"
      "grid.policy.hidden = [[8], [8, 8]]\n[[task]]\nname = \"CartPole-v1\"\nrandom = 22\nreference = 500\n"
      "[[method]]\nname = \"PPO\"\nsurrogate.name = \"ppo\"\ntune.surrogate.epsilon = [0.1, 0.2]\n",
      "{\"scores\": {\"a\": {\"t\": [1, 2.5], \"u\": [3]}, \"b\": {\"t\": [1], \"u\": [-4e3]}},\n"
      "\"scales\": {\"t\": {\"random\": 0, \"reference\": 1}, \"u\": {\"random\": 1, \"reference\": -1}}}",
      "method,task,score\na,t,1\n\"b, c\",t,2e-3\n",
      "[\n{\"task\":\"t\",\"method\":\"m\",\"regime\":\"-\",\"seed\":1,\"name\":\"t-m-1\",\"options\":\"0123abcd\","
      "\"ended\":\"finished\",\"final_return\":{\"mean\":1e-7},\"eval_return\":{\"mean\":null},\"window\":{}},\n"
      "{\"task\":\"t\",\"method\":\"m\",\"regime\":\"-\",\"seed\":2,\"name\":\"t-m-2\",\"ended\":\"failed: "
      "why\"}\n]\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  static const bool made = [] {
    std::filesystem::create_directories(kFolder);
    gipo::write_file_atomic(std::string(kFolder) + "/base.toml", "[learner]\nupdates = 200\n");
    return true;
  }();
  GIPO_CHECK(made);
  try {
    const gipo::Suite suite = gipo::parse_suite(text, "fuzz.toml", kFolder);
    GIPO_CHECK(suite.runs.size() ==
               suite.tasks.size() * suite.methods.size() * suite.regimes.size() * suite.seeds.size());
  } catch (const gipo::Error&) {
  }
  try {
    const gipo::Tuning tuning = gipo::parse_tuning(text, "fuzz.toml", kFolder);
    GIPO_CHECK(tuning.runs.methods.size() == tuning.candidates.size());
    GIPO_CHECK(!gipo::Tuner(tuning).round_suite().runs.empty());
  } catch (const gipo::Error&) {
  }
  try {
    std::string again;
    const std::vector<gipo::ResultRow> rows = gipo::parse_results(text, "results.json");
    for (const gipo::ResultRow& row : rows) again += (again.empty() ? "[" : ",") + row.text;
    const std::vector<gipo::ResultRow> same = gipo::parse_results(rows.empty() ? "[]" : again + "]", "again");
    GIPO_CHECK(same.size() == rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) GIPO_CHECK(same[i].text == rows[i].text);
  } catch (const gipo::Error&) {
  }
  for (const char* name : {"fuzz.json", "fuzz.csv"}) {
    try {
      const gipo::ScoreFile file = gipo::parse_scores(text, name);
      if (file.table.methods.size() > 20) continue;
      gipo::BootstrapOptions options;
      options.repetitions = 2;
      GIPO_CHECK(gipo::estimate(file.table, options).methods.size() == file.table.methods.size());
    } catch (const gipo::Error&) {
    }
  }
  return 0;
}
