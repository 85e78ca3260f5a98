#pragma once

namespace gipo::cli {

// Reads the command line, runs the command it names and returns the exit code. Help, and mistakes in the words
// themselves, are answered here; what a command throws is left to the caller.
int run_command_line(int argc, char** argv);

}  // namespace gipo::cli
