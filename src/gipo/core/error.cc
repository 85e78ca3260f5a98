#include "gipo/core/error.h"

namespace gipo {

void invariant_failed(const char* condition, const char* file, int line) {
  throw InvariantError(std::string("invariant broken: ") + condition + " at " + file + ":" + std::to_string(line));
}

}  // namespace gipo
