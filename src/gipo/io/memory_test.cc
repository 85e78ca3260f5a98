#include "gipo/io/memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "gipo/io/temporary_folder.h"

namespace gipo {
namespace {

class Memory : public ::testing::Test {
 protected:
  Memory() {
    put("/proc/meminfo", "MemTotal:       16000000 kB\nMemFree: 1 kB\n");
    put("/proc/self/status", "Name:\tgipo\nVmRSS:\t   30000 kB\nRssAnon:\t   10000 kB\nRssShmem:\t 0 kB\n");
  }
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  MemoryLimit limit() const { return memory_limit(folder_.path()); }

  TemporaryFolder folder_;
};

TEST_F(Memory, WithoutAControlGroupTheMachineIsTheLimit) {
  EXPECT_EQ(limit().bytes, 16000000.0 * 1024);
  EXPECT_EQ(limit().used_by_others, 0);
  EXPECT_EQ(limit().what, "this machine");
  EXPECT_EQ(resident_bytes(folder_.path()), 30000.0 * 1024);
}

TEST_F(Memory, LimitOfVersionTwoIsTheSmallestOnTheWayUp) {
  put("/proc/self/cgroup", "0::/user.slice/job\n");
  put("/sys/fs/cgroup/user.slice/job/memory.max", "max\n");
  put("/sys/fs/cgroup/user.slice/memory.max", "300000000\n");
  put("/sys/fs/cgroup/user.slice/memory.current", "120000000\n");
  put("/sys/fs/cgroup/user.slice/memory.stat", "anon 1\nfile_dirty 7\nfile 50000000\n");
  EXPECT_EQ(limit().bytes, 3e8);
  EXPECT_EQ(limit().used_by_others, 120e6 - 50e6 - 10000.0 * 1024) << "without file caches and what is our own";
  EXPECT_EQ(limit().what, "the control group /user.slice");
  put("/sys/fs/cgroup/user.slice/job/memory.max", "200000000\n");
  EXPECT_EQ(limit().bytes, 2e8);
  EXPECT_EQ(limit().used_by_others, 0) << "never below nothing";
}

TEST_F(Memory, LimitOfVersionOneCounts) {
  put("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n");
  put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "400000000\n");
  put("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "90000000\n");
  put("/sys/fs/cgroup/memory/docker/abc/memory.stat", "cache 3\ntotal_cache 20000000\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(limit().bytes, 4e8);
  EXPECT_EQ(limit().used_by_others, 90e6 - 20e6 - 10000.0 * 1024);
}

// A container sees its own group at the root, under a path of the host that is not there.
TEST_F(Memory, LimitAtTheRootOfAContainerCounts) {
  put("/proc/self/cgroup", "4:memory:/kubepods/pod1/c1\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "500000000\n");
  EXPECT_EQ(limit().bytes, 5e8);
}

TEST_F(Memory, WhatCannotBeReadSetsNoLimit) {
  put("/proc/self/cgroup", "no colon\n0:\n\n4:memory:/x\n");
  put("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "\n");
  EXPECT_EQ(limit().what, "this machine");
  std::filesystem::remove_all(folder_.path() + "/proc");
  EXPECT_TRUE(std::isinf(limit().bytes));
}

TEST_F(Memory, OfThisMachineIsRead) {
  EXPECT_GT(memory_limit().bytes, 1e7);
  EXPECT_GT(resident_bytes(), 1e5);
}

}  // namespace
}  // namespace gipo
