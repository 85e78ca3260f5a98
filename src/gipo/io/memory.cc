#include "gipo/io/memory.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>

#include "gipo/core/error.h"
#include "gipo/io/files.h"

namespace gipo {
namespace {

constexpr std::uint64_t kMostBytes = 1024 * 1024;
constexpr double kUnlimited = 1e18;  // version 1 writes "none" as a number a little below 2^63

std::string text_of(const std::string& path) {
  try {
    return read_file(path, kMostBytes);
  } catch (const Error&) {
    return {};  // no such file: it sets no limit
  }
}

std::optional<double> number_in(const std::string& path) {
  std::istringstream text(text_of(path));
  double value = 0;
  if (text >> value) return value;
  return std::nullopt;  // version 2 writes "max"
}

// The number after a name at the beginning of a line.
double field(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream rest(line.substr(name.size()));
    if (double value = 0; rest >> value) return value;
  }
  return 0;
}

// Anonymous memory of this process: what a group counts of it beside file caches.
double own_bytes(const std::string& root) {
  const std::string status = text_of(root + "/proc/self/status");
  return 1024 * (field(status, "RssAnon:") + field(status, "RssShmem:"));
}

struct Hierarchy {
  std::string mount, limit, usage;  // files of a group
  std::string cache, shared;        // fields of its memory.stat: files in memory; of these, those that are only there
};

class Limits {
 public:
  explicit Limits(const std::string& root) : root_(root), own_(own_bytes(root)) {
    least_.bytes = std::numeric_limits<double>::infinity();
  }

  void take(MemoryLimit limit) {
    if (limit.bytes < kUnlimited && limit.available() < least_.available()) least_ = std::move(limit);
  }

  // A group and those around it. In a container the path may be that of the host, of which only the end is mounted.
  void take_groups(const Hierarchy& h, std::string group) {
    while (group.ends_with('/')) group.pop_back();
    for (; !group.empty(); group.erase(group.rfind('/'))) {
      if (!group.starts_with('/')) return;
      take_group(h, group);
    }
    take_group(h, "");
  }

  const MemoryLimit& least() const { return least_; }

 private:
  void take_group(const Hierarchy& h, const std::string& group) {
    const std::string folder = root_ + h.mount + group + "/";
    const std::optional<double> limit = number_in(folder + h.limit);
    if (!limit) return;
    const std::string stat = text_of(folder + "memory.stat");
    const double used = number_in(folder + h.usage).value_or(0) - field(stat, h.cache) + field(stat, h.shared) - own_;
    take({*limit, std::max(0.0, used), "the control group " + (group.empty() ? "/" : group)});
  }

  std::string root_;
  double own_;
  MemoryLimit least_;
};

}  // namespace

MemoryLimit memory_limit(const std::string& root) {
  const Hierarchy v2{"/sys/fs/cgroup", "memory.max", "memory.current", "file ", "shmem "};
  const Hierarchy hybrid{"/sys/fs/cgroup/unified", "memory.max", "memory.current", "file ", "shmem "};
  const Hierarchy v1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache ",
                     "total_shmem "};
  Limits limits(root);
  const double machine = 1024 * field(text_of(root + "/proc/meminfo"), "MemTotal:");
  if (machine > 0) limits.take({machine, 0, "this machine"});
  // Lines NUMBER:CONTROLLERS:PATH.
  std::istringstream lines(text_of(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      limits.take_groups(v2, group);
      limits.take_groups(hybrid, group);
    } else if (controllers.find(",memory,") != std::string::npos) {
      limits.take_groups(v1, group);
    }
  }
  return limits.least();
}

double resident_bytes(const std::string& root) { return 1024 * field(text_of(root + "/proc/self/status"), "VmRSS:"); }

}  // namespace gipo
