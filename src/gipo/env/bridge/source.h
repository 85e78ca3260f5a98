#pragma once

#include <string>

namespace gipo {

// The text of python/gipo/worker.py, which the build puts into the program: any Python will do, and program and worker
// are always of one version.
std::string worker_source();

}  // namespace gipo
