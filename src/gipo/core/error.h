#pragma once

#include <stdexcept>
#include <string>

namespace gipo {

// A mistake of the user's: bad config, bad argument, missing file. The message names the key, the value and what is
// accepted. Only cli/main.cc catches it, and exits 2.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A run that cannot go on (disk, diverged training): exit 1.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A broken invariant: a defect of ours, never of the user's.
class InvariantError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void invariant_failed(const char* condition, const char* file, int line);

}  // namespace gipo

#define GIPO_CHECK(condition)                                                   \
  do {                                                                          \
    if (!(condition)) ::gipo::invariant_failed(#condition, __FILE__, __LINE__); \
  } while (false)

// Where no path leads; compilers know that none goes on from here.
#define GIPO_NOT_REACHED() ::gipo::invariant_failed("not reached", __FILE__, __LINE__)
