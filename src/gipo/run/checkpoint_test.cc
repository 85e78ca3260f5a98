#include "gipo/run/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/io/checksum.h"
#include "gipo/io/files.h"
#include "gipo/io/temporary_folder.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;

// Files of the names and kinds that a run has, small enough to damage every byte of.
Checkpoint small(std::int64_t update) {
  Checkpoint c;
  c.update = update;
  c.files["learner.bin"] = std::string("\0\x01\xff learner ", 12) + std::to_string(update);
  c.files["replay.bin"] = std::string(48, static_cast<char>(update));
  c.files["actors.bin"] = "";
  c.files["state.json"] = "{\n  \"update\": " + std::to_string(update) + "\n}\n";
  return c;
}

// Without the sync of the real thing: the tests write thousands of times.
void overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

void set_byte(const std::string& path, std::size_t at, char byte) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at)).put(byte);
}

class Checkpoints : public ::testing::Test {
 protected:
  void write(std::int64_t update, std::int64_t keep = 3) { write_checkpoint(folder_, small(update), keep); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  // The newest whole one; -1 without any. Remembers the lines that were said.
  std::int64_t newest() {
    said_.clear();
    const std::optional<Checkpoint> found = newest_checkpoint(folder_, said_);
    if (!found) return -1;
    EXPECT_EQ(read_checkpoint(found->path).files, small(found->update).files);
    return found->update;
  }
  // That the newest checkpoint is now passed over with one line, and the one before taken.
  void expect_passed_over(const std::string& name, const std::string& how) {
    ASSERT_EQ(newest(), 1) << how;
    ASSERT_EQ(said_.size(), 1u) << how;
    EXPECT_NE(said_[0].find(path(name)), std::string::npos) << how << ": " << said_[0];
    EXPECT_EQ(said_[0].find('\n'), std::string::npos) << how;
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryFolder top_;
  const std::string folder_ = top_ / "checkpoints";
  std::vector<std::string> said_;
};

TEST_F(Checkpoints, ReadBackAsWritten) {
  EXPECT_EQ(newest(), -1) << "no folder at all";
  write(7);
  const Checkpoint back = read_checkpoint(path("000007"));
  EXPECT_EQ(back.update, 7);
  EXPECT_EQ(back.files, small(7).files);
  EXPECT_EQ(entries(), (std::vector<std::string>{"000007", "LATEST"}));
  EXPECT_EQ(newest(), 7);
  EXPECT_TRUE(said_.empty());
}

TEST_F(Checkpoints, EveryDamagedByteIsDetectedAndTheOneBeforeTaken) {
  write(1), write(2);
  std::size_t damaged = 0;
  for (const auto& entry : fs::directory_iterator(path("000002"))) {
    const std::string file = entry.path().string(), whole = read_file(file);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      for (const int flip : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
        set_byte(file, at, static_cast<char>(whole[at] ^ flip));
        expect_passed_over("000002", file + " byte " + std::to_string(at) + " flip " + std::to_string(flip));
        if (HasFatalFailure()) return;
        ++damaged;
      }
      set_byte(file, at, whole[at]);
    }
  }
  EXPECT_GT(damaged, 9u * 300);
  EXPECT_EQ(newest(), 2) << "mended";
}

TEST_F(Checkpoints, TruncationAtTwoHundredPlacesIsDetected) {
  write(1), write(2);
  int places = 0;
  for (const auto& entry : fs::directory_iterator(path("000002"))) {
    const std::string file = entry.path().string(), whole = read_file(file);
    for (std::size_t size = 0; size < whole.size(); ++size, ++places) {
      overwrite(file, whole.substr(0, size));
      expect_passed_over("000002", file + " cut to " + std::to_string(size));
      if (HasFatalFailure()) return;
    }
    overwrite(file, whole + '\0');
    expect_passed_over("000002", file + " with a byte more");
    overwrite(file, whole);
  }
  EXPECT_GE(places, 200);
}

TEST_F(Checkpoints, MissingFileIsDetected) {
  write(1), write(2);
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path("000002"))) files.push_back(entry.path().string());
  ASSERT_EQ(files.size(), 5u);
  for (const std::string& file : files) {
    const std::string whole = read_file(file);
    fs::remove(file);
    expect_passed_over("000002", file);
    EXPECT_NE(said_[0].find(fs::path(file).filename().string()), std::string::npos) << said_[0];
    fs::create_directory(file);  // of the right name, of the wrong kind
    expect_passed_over("000002", file + " as a folder");
    fs::remove(file);
    overwrite(file, whole);
  }
}

// The manifest says what belongs to a checkpoint; what else lies there (an editor's copy, .nfs files) does no harm.
TEST_F(Checkpoints, ExtraFileIsIgnored) {
  write(1), write(2);
  overwrite(path("000002/notes.txt"), "mine");
  EXPECT_EQ(newest(), 2);
  EXPECT_TRUE(said_.empty());
}

// A checkpoint names positions in the logs: it may not be there before what it names.
TEST_F(Checkpoints, LogsThatCannotReachTheDiskMakeNoCheckpoint) {
  write(1);
  Checkpoint next = small(2);
  next.logs = {top_ / "metrics.jsonl"};
  EXPECT_THROW(write_checkpoint(folder_, next, 3), RunError);
  EXPECT_EQ(newest(), 1);
  EXPECT_EQ(entries(), (std::vector<std::string>{"000001", "LATEST"}));
  overwrite(next.logs[0], "a line\n");
  write_checkpoint(folder_, next, 3);
  EXPECT_EQ(newest(), 2);
}

TEST_F(Checkpoints, OneThatIsRefusedIsPassedOver) {
  write(1), write(2);
  const auto found = newest_checkpoint(folder_, said_, [](const Checkpoint& c) {
    if (c.update == 2) throw Error("not this one");
  });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->update, 1);
  EXPECT_EQ(said_, (std::vector<std::string>{"checkpoint passed over: not this one"}));
}

TEST_F(Checkpoints, AnotherFormatIsSaid) {
  write(1), write(2);
  // A whole manifest of another version: only the number and the checksum differ.
  const std::string file = path("000002/manifest.json"), begin = "{\"manifest\":";
  std::string text = read_file(file);
  const std::size_t at = text.find("\"format\":6"), end = text.rfind(",\"crc32c\":\"");
  ASSERT_NE(at, std::string::npos);
  text[at + 9] = '9';
  char checksum[9];
  std::snprintf(checksum, sizeof checksum, "%08x", crc32c(text.substr(begin.size(), end - begin.size())));
  text.replace(end + 11, 8, checksum);
  overwrite(file, text);
  expect_passed_over("000002", "format 9");
  EXPECT_NE(said_[0].find("its format is 9, this program reads 6"), std::string::npos) << said_[0];
}

TEST_F(Checkpoints, CheckpointOfAnotherUpdateIsPassedOver) {
  write(1), write(2);
  fs::rename(path("000002"), path("000005"));
  expect_passed_over("000005", "renamed");
}

TEST_F(Checkpoints, WhatIsNotACheckpointIsPassedOver) {
  write(1);
  fs::create_directory(path("000002"));
  expect_passed_over("000002", "empty folder");
  fs::remove(path("000002"));
  overwrite(path("000002"), "a file");
  expect_passed_over("000002", "a file");
  fs::remove(path("000002"));
  for (const char* name : {"2", "00000x", "000002.old", "9999999999999999999"}) fs::create_directory(path(name));
  EXPECT_EQ(newest(), 1);
  EXPECT_TRUE(said_.empty());
}

TEST_F(Checkpoints, TheLastFewAreKept) {
  for (std::int64_t update = 1; update <= 6; ++update) write(update, 3);
  EXPECT_EQ(list_checkpoints(folder_), (std::vector<std::int64_t>{4, 5, 6}));
  write(7, 1);
  EXPECT_EQ(list_checkpoints(folder_), (std::vector<std::int64_t>{7}));
  write(1'000'000, 2);
  EXPECT_EQ(list_checkpoints(folder_), (std::vector<std::int64_t>{7, 1'000'000})) << "in the order of numbers";
  EXPECT_EQ(newest(), 1'000'000);
}

// A run resumed from an older checkpoint writes its numbers again; what is newer stays until then.
TEST_F(Checkpoints, NewerOnesAreNotRemoved) {
  write(1), write(2), write(9);
  fs::remove(path("000009/manifest.json"));
  write(3, 2);
  EXPECT_EQ(list_checkpoints(folder_), (std::vector<std::int64_t>{2, 3, 9}));
  EXPECT_EQ(newest(), 3);
  write(9, 2);
  EXPECT_EQ(newest(), 9) << "the damaged one was replaced";
  EXPECT_TRUE(said_.empty());
}

TEST_F(Checkpoints, LeftoverTemporaryIsIgnoredAndReplaced) {
  write(1), write(2);
  fs::rename(path("000002"), path("000002.tmp"));  // whole, but never renamed: not yet a checkpoint
  overwrite(path("000002.tmp/stray"), "left by a crash");
  EXPECT_EQ(newest(), 1);
  EXPECT_TRUE(said_.empty());
  write(2);
  EXPECT_EQ(newest(), 2);
  EXPECT_EQ(entries(), (std::vector<std::string>{"000001", "000002", "LATEST"}));
  EXPECT_FALSE(fs::exists(path("000002/stray")));
}

TEST_F(Checkpoints, AStreamedFileIsAFileLikeAnyOther) {
  const std::string large(3'000'000, 'r');
  Checkpoint one = small(5), two = small(5);
  one.files["replay.bin"] = large;
  two.files.erase("replay.bin");
  two.streams["replay.bin"] = [&](ByteWriter& out) {
    for (std::size_t at = 0; at < large.size(); at += 1000) out.append(std::string_view(large).substr(at, 1000));
  };
  write_checkpoint(folder_, one, 3);
  const std::string manifest = read_file(path("000005/manifest.json"));
  write_checkpoint(folder_, two, 3);
  EXPECT_EQ(read_file(path("000005/manifest.json")), manifest);
  EXPECT_EQ(read_checkpoint(path("000005")).files, one.files);
  const Checkpoint found = find_checkpoint(path("000005"));
  EXPECT_EQ(found.files.size(), 1u) << "state.json alone is held";
  found.load("replay.bin", [&](ByteReader& in) {
    EXPECT_EQ(in.left(), large.size());
    while (in.left() > 0) ASSERT_EQ(in.value<char>(), 'r');
  });
  EXPECT_THROW(found.load("replay.bin", [](ByteReader& in) { in.value<char>(); }), Error) << "some is left";
  EXPECT_THROW(found.load("other.bin", [](ByteReader&) {}), Error);
}

TEST_F(Checkpoints, LatestNamesTheNewest) {
  for (const std::int64_t update : {1, 20, 300}) {
    write(update, 2);
    const std::string name = read_file(path("LATEST"));
    EXPECT_EQ(name.back(), '\n');
    EXPECT_EQ(read_checkpoint(path(name.substr(0, name.size() - 1))).update, update);
  }
}

TEST_F(Checkpoints, AFailedWriteLeavesTheOneBefore) {
  write(1);
  Checkpoint bad = small(2);
  bad.files["no/such/folder.bin"] = "x";
  EXPECT_THROW(write_checkpoint(folder_, bad, 3), RunError);
  EXPECT_EQ(entries(), (std::vector<std::string>{"000001", "LATEST"}));
  EXPECT_EQ(newest(), 1);
}

TEST_F(Checkpoints, ThreadOfTheWriterEndsWithAllOnDisk) {
  {
    CheckpointWriter writer(folder_, 2);
    for (std::int64_t update = 1; update <= 30; ++update) writer.submit(small(update));
    writer.finish();
    EXPECT_EQ(newest(), 30) << "each waits for the one before";
    EXPECT_TRUE(writer.take_warnings().empty());
    writer.submit(small(31));
  }
  EXPECT_EQ(newest(), 31) << "the destructor waits for what was submitted";
  EXPECT_LE(list_checkpoints(folder_).size(), 2u);
}

TEST_F(Checkpoints, ThreadOfTheWriterWarnsAndGoesOn) {
  overwrite(folder_, "a file where the folder should be");
  CheckpointWriter writer(folder_, 2);
  writer.submit(small(1));
  writer.finish();
  const std::vector<std::string> warnings = writer.take_warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("checkpoint 1 was not written"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find(folder_), std::string::npos) << warnings[0];
  EXPECT_TRUE(writer.take_warnings().empty()) << "told once";
  fs::remove(folder_);
  writer.submit(small(2));
  writer.finish();
  EXPECT_TRUE(writer.take_warnings().empty());
  EXPECT_EQ(newest(), 2);
}

TEST_F(Checkpoints, ThreadOfTheWriterMayBeAskedWhileItWrites) {
  CheckpointWriter writer(folder_, 100);  // all are kept, so that none goes while it is read
  for (std::int64_t update = 1; update <= 20; ++update) {
    writer.submit(small(update));
    EXPECT_TRUE(writer.take_warnings().empty());
    // A reader finds a whole one at any moment, once there was one.
    EXPECT_TRUE(!fs::exists(path("LATEST")) || newest() >= 1);
  }
}

}  // namespace
}  // namespace gipo
