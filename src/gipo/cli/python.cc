#include "gipo/cli/python.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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

PythonPeer::PythonPeer(const std::string& module, const std::vector<std::string>& arguments) {
  const std::string python = find_python();
  int to[2], from[2];
  if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) throw RunError("cannot make a pipe");
  child_ = ::fork();
  if (child_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::setpgid(0, 0);  // Ctrl-C reaches this program alone
    ::dup2(to[0], STDIN_FILENO);
    ::dup2(from[1], STDOUT_FILENO);
    become(python, module, arguments);
    ::_exit(127);
  }
  ::close(to[0]);
  ::close(from[1]);
  to_ = to[1];
  from_ = from[0];
  if (child_ < 0) throw RunError("cannot start a process");
  std::signal(SIGPIPE, SIG_IGN);  // that it has ended is told by what it answers
}

PythonPeer::~PythonPeer() {
  ::close(to_);  // it ends at the end of its input
  ::close(from_);
  while (child_ > 0 && ::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void PythonPeer::write_line(const std::string& line) {
  const std::string text = line + "\n";
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(to_, text.data() + at, text.size() - at);
    if (n < 0 && errno != EINTR) return;  // it has ended: read_line says so
    at += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
}

std::optional<std::string> PythonPeer::read_line(bool wait) {
  while (true) {
    if (const std::size_t end = read_.find('\n'); end != read_.npos) {
      std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return line;
    }
    pollfd ready{from_, POLLIN, 0};
    const int n = ::poll(&ready, 1, wait ? -1 : 0);
    if (n == 0 || (n < 0 && errno == EINTR)) {
      if (wait) continue;
      return std::nullopt;
    }
    char buffer[4096];
    const ssize_t got = ::read(from_, buffer, sizeof buffer);
    if (got <= 0) throw RunError("the Python process beside this one has ended");
    read_.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace gipo::cli
