#include "gipo/io/files.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "gipo/core/error.h"
#include "gipo/core/message_of.h"
#include "gipo/io/temporary_folder.h"

namespace gipo {
namespace {

class Files : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return top_ / name; }

  TemporaryFolder top_;
  const std::string folder_ = top_.path();
};

TEST_F(Files, AtomicWriteReadsBack) {
  const std::string bytes("a\0b\n", 4);
  write_file_atomic(path("x"), bytes);
  EXPECT_EQ(read_file(path("x")), bytes);
  write_file_atomic(path("x"), "");
  EXPECT_EQ(read_file(path("x")), "");
  const std::string large(300'000, 'z');
  write_file_atomic(path("x"), large);
  EXPECT_EQ(read_file(path("x")), large);
  EXPECT_FALSE(std::filesystem::exists(path("x.tmp")));
}

TEST_F(Files, ErrorsNamePathAndReason) {
  EXPECT_EQ(message_of<Error>([&] { read_file(path("none")); }),
            "cannot read " + path("none") + ": No such file or directory");
  EXPECT_EQ(message_of<Error>([&] { read_file(folder_); }), "cannot read " + folder_ + ": Is a directory");
  EXPECT_EQ(message_of<RunError>([&] { write_file_atomic(path("no/x"), "1"); }),
            "cannot create " + path("no/x.tmp") + ": No such file or directory");
  EXPECT_EQ(message_of<RunError>([&] { AppendFile file(path("no/x")); }),
            "cannot open " + path("no/x") + ": No such file or directory");
}

TEST_F(Files, FailedReplaceLeavesNothingBehind) {
  std::filesystem::create_directory(path("taken"));
  EXPECT_THROW(write_file_atomic(path("taken"), "1"), RunError);
  EXPECT_FALSE(std::filesystem::exists(path("taken.tmp")));
}

TEST_F(Files, AppendBuffersUntilFlush) {
  AppendFile file(path("log"));
  file.append("one\n");
  file.append("two\n");
  EXPECT_EQ(file.position(), 8u);
  EXPECT_EQ(read_file(path("log")), "");
  file.flush();
  EXPECT_EQ(file.position(), 8u);
  EXPECT_EQ(read_file(path("log")), "one\ntwo\n");
}

TEST_F(Files, AppendGoesOnAtTheEnd) {
  { AppendFile(path("log")).append("one\n"); }
  AppendFile file(path("log"));
  EXPECT_EQ(file.position(), 4u);
  file.append(std::string(200'000, 'x'));
  file.sync();
  EXPECT_EQ(read_file(path("log")), "one\n" + std::string(200'000, 'x'));
}

TEST_F(Files, AppendCutsBackToWhatTheCheckpointSaw) {
  { AppendFile(path("log")).append("kept\nlost\n"); }
  {
    AppendFile file(path("log"), 5);
    EXPECT_EQ(file.position(), 5u);
    file.append("new\n");
  }
  EXPECT_EQ(read_file(path("log")), "kept\nnew\n");
  EXPECT_EQ(message_of<RunError>([&] { AppendFile file(path("log"), 10); }),
            path("log") + " is shorter than when it was saved: 9 of 10 bytes");
}

TEST_F(Files, AppendReportsAFullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  AppendFile file("/dev/full");
  file.append("x");
  EXPECT_EQ(message_of<RunError>([&] { file.flush(); }), "cannot write /dev/full: No space left on device");
  EXPECT_EQ(file.position(), 1u);
}

}  // namespace
}  // namespace gipo
