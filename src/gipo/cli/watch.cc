#include "gipo/cli/commands.h"
#include "gipo/cli/python.h"

namespace gipo::cli {

// The page is served by the Python package, which reads the files of runs and nothing else.
int watch(const WatchArguments& a) {
  std::vector<std::string> words = {"--port", std::to_string(a.port)};
  if (a.no_browser) words.push_back("--no-browser");
  words.insert(words.end(), {"--", a.path});
  become_python("gipo.watch", words);
}

}  // namespace gipo::cli
