#include "gipo/cli/python.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "gipo/core/error.h"

namespace gipo::cli {
namespace {

namespace fs = std::filesystem;

fs::path package_root() {
  for (fs::path folder = fs::path(own_path()).parent_path(); !folder.empty(); folder = folder.parent_path()) {
    if (fs::exists(folder / "python" / "gipo" / "__init__.py")) return folder;
    if (folder == folder.parent_path()) break;
  }
  return {};
}

std::string find_python(const fs::path& root) {
  if (const char* chosen = std::getenv("GIPO_PYTHON")) return chosen;
  const fs::path beside = fs::path(own_path()).parent_path() / "python";
  if (fs::is_regular_file(beside)) return beside.string();
  const fs::path own = root / ".venv" / "bin" / "python";
  return !root.empty() && fs::exists(own) ? own.string() : "python3";
}

}  // namespace

std::string own_path() { return fs::read_symlink("/proc/self/exe").string(); }

int run_python(const std::string& module, const std::vector<std::string>& arguments, const std::string& input) {
  const fs::path root = package_root();
  const std::string python = find_python(root);
  // A file rather than a pipe: neither side waits for the other.
  std::FILE* in = std::tmpfile();
  if (!in) throw RunError("cannot make a temporary file");
  std::fwrite(input.data(), 1, input.size(), in);
  std::fflush(in);
  std::rewind(in);

  std::vector<std::string> words = {python, "-m", module};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  std::string path = root.empty() ? "" : (root / "python").string();
  if (const char* before = std::getenv("PYTHONPATH")) path += (path.empty() ? "" : ":") + std::string(before);
  const std::string self = own_path();

  const pid_t child = ::fork();
  if (child < 0) throw RunError("cannot start a process");
  if (child == 0) {
    ::setenv("PYTHONPATH", path.c_str(), 1);
    ::setenv("GIPO_BINARY", self.c_str(), 1);
    ::dup2(::fileno(in), STDIN_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  std::fclose(in);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    throw RunError(fmt::format("cannot start {}: set GIPO_PYTHON to a Python that has matplotlib", python));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace gipo::cli
