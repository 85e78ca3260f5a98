#include "gipo/cli/commands.h"
#include "gipo/cli/python.h"

namespace gipo::cli {

// Figures are drawn by the Python package; every aggregate in them comes from this program again.
int report(const ReportArguments& a) {
  std::vector<std::string> words = a.folders;
  for (const std::string& task : a.tasks) words.insert(words.end(), {"--task", task});
  if (!a.out.empty()) words.insert(words.end(), {"--out", a.out});
  if (a.json) words.push_back("--json");
  return run_python("gipo.report", words);
}

}  // namespace gipo::cli
