#include "gipo/study/run_launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "gipo/core/error.h"

namespace gipo {
namespace {

// The child's side of fork: only calls that are safe there.
[[noreturn]] void become(const char* binary, char* const* argv, int output, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent died before the line above
  ::setpgid(0, 0);                        // Ctrl-C reaches the suite alone, which then asks its runs
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::execv(binary, argv);
  ::_exit(127);
}

}  // namespace

int LocalLauncher::room() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

pid_t LocalLauncher::start(const std::vector<std::string>& arguments, const std::string& output_path) {
  const int output = ::open(output_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (output < 0) throw RunError(fmt::format("cannot open {}: {}", output_path, std::strerror(errno)));
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), "gipo");
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) become(binary_.c_str(), argv.data(), output, parent);
  const int error = errno;
  ::close(output);
  if (child < 0) throw RunError(fmt::format("cannot start a process: {}", std::strerror(error)));
  return child;
}

std::optional<RunLauncher::End> LocalLauncher::ended(pid_t run) {
  int status = 0;
  if (::waitpid(run, &status, WNOHANG) != run) return std::nullopt;
  return End{WIFEXITED(status) ? std::optional(WEXITSTATUS(status)) : std::nullopt, ""};
}

void LocalLauncher::interrupt(pid_t run) { ::kill(run, SIGINT); }
void LocalLauncher::kill(pid_t run) { ::kill(run, SIGKILL); }

}  // namespace gipo
