#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "gipo/core/error.h"

namespace gipo {

// For what needs one for a while: an empty folder that goes with all that is in it. Throws RunError where none can be
// made.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path())
      : path_((parent / "gipo-XXXXXX").string()) {  // mkdtemp fills the Xs in
    if (::mkdtemp(path_.data()) == nullptr) throw RunError("cannot create " + path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  // In memory where there is such a file system.
  static std::filesystem::path memory() {
    return std::filesystem::exists("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
  }

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace gipo
