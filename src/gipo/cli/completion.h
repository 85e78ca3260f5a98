#pragma once

#include <string>
#include <vector>

namespace gipo::cli {

// The words of the command line, as arguments.cc declares them, for shells that complete them.

// What may stand in a place, or behind an option.
struct CompletedValue {
  enum class Kind { kNone, kText, kPath, kChoice };  // none: the option is a flag
  Kind kind = Kind::kNone;
  std::vector<std::string> choices = {};
};

struct CompletedOption {
  std::string name, help;  // "--seed"
  CompletedValue value;
};

struct CompletedCommand {
  std::string path, help;  // "study gridworld"; the program itself: empty
  std::vector<CompletedOption> options;
  CompletedValue place;  // what its places take; none: it has none
};

// A script for bash, zsh or fish. Each command that has others below it stands before them.
std::string completion_script(const std::string& shell, const std::vector<CompletedCommand>& commands);

}  // namespace gipo::cli
