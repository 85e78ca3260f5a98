// With GIPO_FUZZ_SEEDS=FOLDER a fuzz program first writes its valid inputs there: made from today's formats, never stale.
#include <cstdlib>
#include <string>
#include <vector>

#include "gipo/io/files.h"

std::vector<std::string> valid_inputs();

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* folder = std::getenv("GIPO_FUZZ_SEEDS");
  if (!folder) return 0;
  int number = 0;
  for (const std::string& input : valid_inputs()) {
    gipo::write_file_atomic(std::string(folder) + "/valid_" + std::to_string(number++), input);
  }
  return 0;
}
