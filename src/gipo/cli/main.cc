#include <cstdio>
#include <exception>

#include "gipo/cli/arguments.h"
#include "gipo/cli/commands.h"
#include "gipo/core/error.h"

int main(int argc, char** argv) {
  try {
    return gipo::cli::run_command_line(argc, argv);
  } catch (const gipo::Error& e) {
    std::fprintf(stderr, "gipo: %s\n", e.what());
    return gipo::cli::kUserMistake;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gipo: %s\n", e.what());
    return gipo::cli::kFailed;
  }
}
