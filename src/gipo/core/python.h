#pragma once

#include <string>

namespace gipo {

// Where this program lies.
std::string own_path();
// The folder of the checkout that this program, or this module of Python, was built in, which holds python/gipo; empty
// where there is none.
std::string checkout();
// The Python to start: `chosen`, else the environment variable GIPO_PYTHON, else the one beside the program, as in a
// virtual environment, else that of the checkout's .venv, else python3.
std::string find_python(const std::string& chosen = {});

}  // namespace gipo
