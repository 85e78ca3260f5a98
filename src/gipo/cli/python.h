#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace gipo::cli {

// Runs `python -m MODULE ARGUMENTS` of the Python package that belongs to this program and returns its exit code;
// `input` is its standard input. Python: `chosen`, else as core/python.h says. The package: python/ in
// the nearest folder above the program that has one, else whatever that Python has installed.
int run_python(const std::string& module, const std::vector<std::string>& arguments, const std::string& input = "",
               const std::string& chosen = "");
// The same in place of this program, which ends with it.
[[noreturn]] void become_python(const std::string& module, const std::vector<std::string>& arguments);

// The same beside this program, which speaks to it in lines. It ends when this is destroyed, or with this program.
class PythonPeer {
 public:
  PythonPeer(const std::string& module, const std::vector<std::string>& arguments);
  ~PythonPeer();
  PythonPeer(const PythonPeer&) = delete;
  PythonPeer& operator=(const PythonPeer&) = delete;

  void write_line(const std::string& line);
  // The next line; none where there is no whole one yet. wait: until there is. Throws RunError once it has ended.
  std::optional<std::string> read_line(bool wait);

 private:
  pid_t child_ = -1;
  int to_ = -1, from_ = -1;
  std::string read_;  // and not yet asked for
};

}  // namespace gipo::cli
