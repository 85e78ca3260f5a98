#pragma once

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

}  // namespace gipo::cli
