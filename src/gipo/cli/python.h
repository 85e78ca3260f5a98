#pragma once

#include <string>
#include <vector>

namespace gipo::cli {

// Runs `python -m MODULE ARGUMENTS` of the Python package that belongs to this program and returns its exit code;
// `input` is its standard input. Python: $GIPO_PYTHON, else the one beside this program, where pip put it, else
// .venv beside the package's folder, else python3. The package: python/ in the nearest folder above the program that has one, else whatever that Python has installed.
int run_python(const std::string& module, const std::vector<std::string>& arguments, const std::string& input = "");

std::string own_path();  // of this program

}  // namespace gipo::cli
