#include "gipo/run/version.h"

// CMake defines both for this file alone, so that a commit recompiles one small file and not the library.
#ifndef GIPO_VERSION
#define GIPO_VERSION "unknown"
#endif
#ifndef GIPO_COMMIT
#define GIPO_COMMIT "unknown"
#endif

namespace gipo {

std::string version() { return GIPO_VERSION; }
std::string commit() { return GIPO_COMMIT; }

}  // namespace gipo
