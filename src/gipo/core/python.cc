#include "gipo/core/python.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

namespace gipo {

namespace fs = std::filesystem;

std::string own_path() { return fs::read_symlink("/proc/self/exe").string(); }

std::string checkout() {
  Dl_info info{};
  const bool known = ::dladdr(reinterpret_cast<const void*>(&checkout), &info) != 0 && info.dli_fname;
  std::error_code ignored;
  const fs::path own = known ? fs::canonical(info.dli_fname, ignored) : fs::path();
  for (fs::path folder = own.parent_path(); !folder.empty(); folder = folder.parent_path()) {
    if (fs::exists(folder / "python" / "gipo" / "__init__.py")) return folder.string();
    if (folder == folder.parent_path()) break;
  }
  return {};
}

std::string find_python(const std::string& chosen) {
  if (!chosen.empty()) return chosen;
  if (const char* named = std::getenv("GIPO_PYTHON")) return named;
  const fs::path beside = fs::path(own_path()).parent_path() / "python3";
  if (fs::exists(beside)) return beside.string();
  const std::string root = checkout();
  const fs::path own = fs::path(root) / ".venv" / "bin" / "python";
  return !root.empty() && fs::exists(own) ? own.string() : "python3";
}

}  // namespace gipo
