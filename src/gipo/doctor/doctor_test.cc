#include "gipo/doctor/doctor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>

#include "gipo/core/error.h"
#include "gipo/train/small_runs.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;

// A small finished run, in a folder of its own; each test damages something.
class Doctor : public SmallRuns, public ::testing::Test {
 protected:
  Doctor() {
    Config& c = loaded_.config;
    c.learner.batch_size = 32;
    c.eval.every_updates = 15;
    c.eval.episodes = 1;
    c.checkpoint.every_updates = 0;
    run("run");
  }

  std::string path(const std::string& name) const { return run_ + "/" + name; }
  void look() { found_ = examine(run_); }
  // Whether there is a finding of this health that holds this text.
  bool says(Health health, const std::string& text) const {
    return std::any_of(found_.findings.begin(), found_.findings.end(),
                       [&](const Finding& f) { return f.health == health && f.text.find(text) != std::string::npos; });
  }
  std::string all() const {
    std::string text;
    for (const Finding& f : found_.findings) text += std::to_string(static_cast<int>(f.health)) + " " + f.text + "\n";
    return text + "next: " + found_.next;
  }
  void replace_text(const std::string& name, const std::string& before, const std::string& after) {
    std::string text = read_file(path(name));
    const std::size_t at = text.find(before);
    ASSERT_NE(at, std::string::npos);
    write_file_atomic(path(name), text.replace(at, before.size(), after));
  }
  std::vector<std::string> lines(const std::string& name) const {
    std::vector<std::string> all;
    std::istringstream in(read_file(path(name)));
    for (std::string line; std::getline(in, line);) all.push_back(line + "\n");
    return all;
  }
  void write_lines(const std::string& name, const std::vector<std::string>& all) {
    std::string text;
    for (const std::string& line : all) text += line;
    write_file_atomic(path(name), text);
  }
  void flip(const std::string& name, std::size_t at) {
    std::string bytes = read_file(path(name));
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    write_file_atomic(path(name), bytes);
  }

  const std::string run_ = dir_ / "run";
  Diagnosis found_;
};

TEST_F(Doctor, AWholeRunIsGoodAndNothingIsTouched) {
  const auto snapshot = [&] {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(dir_.path())) {
      files[entry.path().string()] = entry.is_regular_file() ? read_file(entry.path().string()) : "";
    }
    return files;
  };
  const auto before = snapshot();
  look();
  EXPECT_FALSE(found_.damaged()) << all();
  for (const Finding& f : found_.findings) EXPECT_EQ(f.health, Health::kGood) << f.text;
  EXPECT_TRUE(says(Health::kGood, "checkpoints/000060: whole")) << all();
  EXPECT_TRUE(says(Health::kGood, "metrics.jsonl: 12 lines, to update 60")) << all();
  EXPECT_TRUE(found_.next.starts_with("nothing")) << found_.next;
  EXPECT_EQ(snapshot(), before);
}

TEST_F(Doctor, WhatIsNotARunFolderIsRefused) {
  EXPECT_THROW(examine(dir_.path()), Error);
  EXPECT_THROW(examine(dir_ / "absent"), Error);
  EXPECT_THROW(examine(path("config.toml")), Error);
}

TEST_F(Doctor, DamagedConfigIsFoundInTheCheckpoint) {
  replace_text("config.toml", "batch_size = 32", "batch_size = \"many\"");
  look();
  EXPECT_TRUE(says(Health::kDamaged, "learner.batch_size")) << all();
  EXPECT_NE(found_.next.find("checkpoints/000060/state.json"), std::string::npos) << found_.next;
  fs::remove(path("config.toml"));
  look();
  EXPECT_TRUE(says(Health::kDamaged, "config.toml: missing")) << all();
}

TEST_F(Doctor, AnOptionThatMayNotChangeIsNamed) {
  replace_text("config.toml", "sigma = 0.5", "sigma = 0.25");
  look();
  EXPECT_TRUE(says(Health::kDamaged, "surrogate.sigma was 0.5 and is now 0.25")) << all();
  EXPECT_NE(found_.next.find("set that option back"), std::string::npos) << found_.next;
}

TEST_F(Doctor, DamagedCheckpointAndLatestAreNamed) {
  flip("checkpoints/000060/replay.bin", 100);
  look();
  EXPECT_TRUE(says(Health::kDamaged, "checkpoints/000060: not whole: replay.bin does not match")) << all();
  EXPECT_TRUE(says(Health::kDamaged, "LATEST: names 000060, which is not a whole")) << all();
  EXPECT_NE(found_.next.find("cannot be lengthened"), std::string::npos) << found_.next;
}

// A checksum says that the bytes are those that were written, not that a run can go on from them.
TEST_F(Doctor, WhatResumeRefusesIsNotGood) {
  const std::string folder = path("checkpoints"), name = folder + "/000060";
  const Checkpoint good = read_checkpoint(name);
  const auto with = [&](const std::string& file, const std::function<void(std::string&)>& change) {
    Checkpoint bad{good.update, good.files};
    change(bad.files.at(file));
    write_checkpoint(folder, bad, 3);
  };
  const auto number = [](const std::string& key, const std::string& sign) {
    return [=](std::string& text) { text.replace(text.find(key), key.size(), key + sign); };
  };
  const auto resume = [&] {
    const ResumePoint point = find_resume_point(run_);
    RunFolder run_folder(
        point.plan, "test", [] { return 0.0; }, point.positions);
    TrainerHooks hooks;
    hooks.seconds = [] { return 0.0; };
    Trainer(point.plan, run_folder, hooks).restore(point.checkpoint);
  };
  const std::function<void(std::string&)> half = [](std::string& bytes) { bytes.resize(bytes.size() / 2); };
  const std::vector<std::pair<std::string, std::function<void(std::string&)>>> changes = {
      {"state.json", number("\"env_steps\": ", "-1")},
      {"state.json", number("\"capacity\": ", "-1")},
      {"state.json", number("\"episodes\": ", "9")},
      {"learner.safetensors", half},
      {"replay.bin", half},
      {"actors.bin", half}};
  for (const auto& [file, change] : changes) {
    with(file, change);
    look();
    EXPECT_TRUE(says(Health::kDamaged, "checkpoints/000060: no resume from there: ")) << file << "\n" << all();
    EXPECT_THROW(resume(), Error) << file;
  }
  write_checkpoint(folder, {good.update, good.files}, 3);
  look();
  EXPECT_FALSE(found_.damaged()) << all();
  EXPECT_NO_THROW(resume());
}

TEST_F(Doctor, AnOlderCheckpointIsAdvisedWhereResumeRefusesTheNewest) {
  const std::string folder = path("checkpoints");
  Checkpoint bad = read_checkpoint(folder + "/000060");
  bad.update = 61;
  const std::string key = "\"env_steps\": ";
  std::string& state = bad.files.at("state.json");
  state.insert(state.find(key) + key.size(), "-");
  write_checkpoint(folder, {bad.update, bad.files}, 3);
  look();
  EXPECT_TRUE(says(Health::kDamaged, "checkpoints/000061: no resume from there: ")) << all();
  EXPECT_TRUE(says(Health::kGood, "checkpoints/000060: whole")) << all();
  EXPECT_NE(found_.next.find("move all checkpoints newer than checkpoints/000060 away"), std::string::npos)
      << found_.next;
}

TEST_F(Doctor, ACheckpointThatWasHalfRemovedIsNoDamage) {
  fs::create_directory(path("checkpoints/000030"));
  write_file_atomic(path("checkpoints/000030/replay.bin"), "the manifest went first");
  look();
  EXPECT_FALSE(found_.damaged()) << all();
  EXPECT_TRUE(says(Health::kNote, "checkpoints/000030: half removed")) << all();
  fs::rename(path("checkpoints/000030"), path("checkpoints/000090"));
  look();
  EXPECT_TRUE(says(Health::kDamaged, "checkpoints/000090: no manifest.json")) << all();
}

TEST_F(Doctor, ARunThatWasKilledIsResumed) {
  fs::remove(path("summary.json"));
  fs::remove(path("policy.safetensors"));
  fs::create_directory(path("checkpoints/000070.tmp"));
  write_file_atomic(path("evaluations.jsonl"), read_file(path("evaluations.jsonl")) + "{\"upd");
  look();
  EXPECT_FALSE(found_.damaged()) << all();
  EXPECT_TRUE(says(Health::kNote, "checkpoints/000070.tmp: left by a write")) << all();
  EXPECT_TRUE(says(Health::kNote, "evaluations.jsonl: line 5 has no end; resume cuts")) << all();
  EXPECT_EQ(found_.next, "gipo resume " + run_);
}

TEST_F(Doctor, AWholeCheckpointThatWasNotRenamedIsNotThrownAway) {
  fs::remove(path("summary.json"));
  fs::rename(path("checkpoints/000060"), path("checkpoints/000060.tmp"));
  look();
  EXPECT_TRUE(found_.damaged());
  EXPECT_TRUE(says(Health::kNote, "checkpoints/000060.tmp: a whole checkpoint")) << all();
  EXPECT_TRUE(found_.next.starts_with("rename " + run_ + "/checkpoints/000060.tmp to ")) << found_.next;
}

TEST_F(Doctor, AFinishedRunThatWasKilledWhenResumedIsToBeResumed) {
  write_lines("evaluations.jsonl",
              {lines("evaluations.jsonl")[0], lines("evaluations.jsonl")[1], lines("evaluations.jsonl")[2]});
  look();
  EXPECT_FALSE(found_.damaged()) << all();
  EXPECT_EQ(found_.next, "gipo resume " + run_);
}

TEST_F(Doctor, KilledBeforeTheFirstCheckpointCannotBeResumed) {
  fs::remove(path("summary.json"));
  fs::remove_all(path("checkpoints"));
  look();
  EXPECT_TRUE(found_.damaged());
  EXPECT_TRUE(found_.next.starts_with("begin again: gipo train " + run_ + "/config.toml")) << found_.next;
}

TEST_F(Doctor, LostAndRepeatedLinesAreFound) {
  const std::vector<std::string> whole = lines("metrics.jsonl");
  std::vector<std::string> all_lines = whole;
  all_lines.erase(all_lines.begin() + 4);
  write_lines("metrics.jsonl", all_lines);
  look();
  EXPECT_TRUE(says(Health::kDamaged, "metrics.jsonl: line 5 is of update 30, the one before of 20")) << all();
  EXPECT_TRUE(says(Health::kDamaged, "metrics.jsonl has ")) << all() << "shorter than the checkpoint saw it";
  all_lines = whole;
  all_lines.insert(all_lines.begin() + 4, whole[3]);
  write_lines("metrics.jsonl", all_lines);
  look();
  EXPECT_TRUE(says(Health::kDamaged, "line 5 is of update 20, the one before of 20")) << all();
  all_lines = whole;
  all_lines[2][0] = 'x';
  write_lines("metrics.jsonl", all_lines);
  look();
  EXPECT_TRUE(says(Health::kDamaged, "metrics.jsonl: line 3 is not a JSON object")) << all();
}

TEST_F(Doctor, LostEpisodesAreFound) {
  std::vector<std::string> all_lines = lines("episodes.jsonl");
  const auto second = std::find_if(all_lines.begin(), all_lines.end(), [](const std::string& line) {
    return line.find("\"env\":0,\"episode\":1,") != std::string::npos;
  });
  ASSERT_NE(second, all_lines.end());
  all_lines.erase(second);
  write_lines("episodes.jsonl", all_lines);
  look();
  EXPECT_TRUE(says(Health::kDamaged, "is episode 2 of environment 0, 1 was due")) << all();
}

TEST_F(Doctor, DamagedPolicyIsWrittenAnewByResume) {
  std::string bytes = read_file(path("policy.safetensors"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  bytes.replace(bytes.size() - sizeof nan, sizeof nan, reinterpret_cast<const char*>(&nan), sizeof nan);
  write_file_atomic(path("policy.safetensors"), bytes);
  look();
  EXPECT_TRUE(says(Health::kDamaged, "policy.safetensors: it holds numbers that are not finite")) << all();
  EXPECT_EQ(found_.next, "gipo resume " + run_);
  write_file_atomic(path("policy.safetensors"), bytes.substr(0, 100));
  look();
  EXPECT_TRUE(says(Health::kDamaged, "policy.safetensors")) << all();
}

TEST_F(Doctor, CountsThatAreNotZeroAreTold) {
  std::vector<std::string> all_lines = lines("metrics.jsonl");
  std::string& last = all_lines.back();
  const std::string field = "\"rejected_segments\":0";
  ASSERT_NE(last.find(field), std::string::npos);
  last.replace(last.find(field), field.size(), "\"rejected_segments\":3");
  write_lines("metrics.jsonl", all_lines);
  look();
  EXPECT_TRUE(says(Health::kNote, "rejected_segments = 3")) << all();
  EXPECT_FALSE(found_.damaged());
}

TEST_F(Doctor, AFolderInUseIsLeftAlone) {
  const FileLock lock(path("lock"), "run folder");
  flip("checkpoints/000060/replay.bin", 100);
  look();
  EXPECT_TRUE(says(Health::kNote, "in use")) << all();
  EXPECT_TRUE(found_.next.starts_with("nothing, while")) << found_.next;
}

}  // namespace
}  // namespace gipo
