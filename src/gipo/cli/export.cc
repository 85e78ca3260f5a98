#include "gipo/train/export.h"

#include <fmt/format.h>

#include <memory>

#include "gipo/cli/commands.h"
#include "gipo/cli/study_commands.h"

namespace gipo::cli {

void add_export(CLI::App& app, std::function<int()>& chosen) {
  struct Arguments {
    std::string run, file;
  };
  const auto a = std::make_shared<Arguments>();
  CLI::App* c = app.add_subcommand("export", "Write the policy of a run as one file for other programs");
  c->add_option("run", a->run, "Run folder, or its policy.safetensors")->required();
  c->add_option("file", a->file, "NAME.onnx, or NAME.safetensors for the weights")->required();
  c->callback([a, &chosen] {
    chosen = [a] {
      export_policy(a->run, a->file);
      fmt::print("{}\n", a->file);
      return kDone;
    };
  });
}

}  // namespace gipo::cli
