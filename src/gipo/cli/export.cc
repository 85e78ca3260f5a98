#include "gipo/run/export.h"

#include <cstdio>

#include "gipo/cli/commands.h"

namespace gipo::cli {

int export_run(const ExportArguments& a) {
  export_policy(a.run, a.file, a.policy);
  std::printf("%s\n", a.file.c_str());
  return kDone;
}

}  // namespace gipo::cli
