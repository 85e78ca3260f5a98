#include "gipo/cli/python.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "gipo/core/error.h"
#include "gipo/core/python.h"

namespace gipo::cli {

namespace {

// Becomes `python -m MODULE ARGUMENTS`. Returns where that Python cannot be started.
void become(const std::string& python, const std::string& module, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {python, "-m", module};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  const std::string root = checkout();
  std::string path = root.empty() ? "" : root + "/python";
  if (const char* before = std::getenv("PYTHONPATH")) path += (path.empty() ? "" : ":") + std::string(before);
  ::setenv("PYTHONPATH", path.c_str(), 1);
  ::setenv("GIPO_BINARY", own_path().c_str(), 1);
  ::execvp(argv[0], argv.data());
}

RunError cannot_start(const std::string& python) {
  return RunError(fmt::format("cannot start {}: set GIPO_PYTHON to a Python that has the package gipo", python));
}

}  // namespace

void become_python(const std::string& module, const std::vector<std::string>& arguments) {
  const std::string python = find_python();
  become(python, module, arguments);
  throw cannot_start(python);
}

int run_python(const std::string& module, const std::vector<std::string>& arguments, const std::string& input,
               const std::string& chosen) {
  const std::string python = find_python(chosen);
  // A file rather than a pipe: neither side waits for the other.
  std::FILE* in = std::tmpfile();
  if (!in) throw RunError("cannot make a temporary file");
  std::fwrite(input.data(), 1, input.size(), in);
  std::fflush(in);
  std::rewind(in);

  const pid_t child = ::fork();
  if (child < 0) throw RunError("cannot start a process");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // it ends with this program
    ::dup2(::fileno(in), STDIN_FILENO);
    become(python, module, arguments);
    ::_exit(127);
  }
  std::fclose(in);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) throw cannot_start(python);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace gipo::cli
