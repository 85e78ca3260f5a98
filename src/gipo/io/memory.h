#pragma once

#include <string>

namespace gipo {

// How much memory this process may use.
struct MemoryLimit {
  double bytes = 0;           // of the limit itself; infinite where nothing says one
  double used_by_others = 0;  // of it, by other processes of the same control group, file caches apart
  std::string what;           // whose limit: "the control group /x", "this machine"
  double available() const { return bytes - used_by_others; }
};

// The smallest of the machine's memory and the limits of the control groups that this process is in, versions 1 and 2
// and all groups around it. `root`: where /proc and /sys are; for tests.
MemoryLimit memory_limit(const std::string& root = "");

// Memory of this process that is in use now, its program included; 0 where the system does not say.
double resident_bytes(const std::string& root = "");

}  // namespace gipo
