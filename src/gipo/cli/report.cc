#include <memory>

#include "gipo/cli/python.h"
#include "gipo/cli/study_commands.h"

namespace gipo::cli {

// Figures are drawn by the Python package; every aggregate in them comes from this program again.
void add_report(CLI::App& app, std::function<int()>& chosen) {
  struct Arguments {
    std::vector<std::string> folders;
    std::string out;
    bool json = false;
  };
  const auto a = std::make_shared<Arguments>();
  CLI::App* c = app.add_subcommand("report", "One HTML page, figures and tables of a suite");
  c->add_option("folder", a->folders, "Folder of a suite, results/NAME; several stand beside each other by regime")
      ->required();
  c->add_option("--out", a->out, "Folder for the report; report/ in the first folder unless given");
  c->add_flag("--json", a->json, "Print the tables as one JSON object on stdout");
  c->callback([a, &chosen] {
    chosen = [a] {
      std::vector<std::string> words = a->folders;
      if (!a->out.empty()) words.insert(words.end(), {"--out", a->out});
      if (a->json) words.push_back("--json");
      return run_python("gipo.report", words);
    };
  });
}

}  // namespace gipo::cli
