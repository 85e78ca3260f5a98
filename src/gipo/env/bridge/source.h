#pragma once

#include <string>

namespace gipo {

// The text of python/gipo/worker.py, which the build puts into the program: any Python will do, and program and worker
// are always of one version.
std::string worker_source();
// The text of python/gipo/robot_tasks.py, which a worker gets that is to make one of its tasks.
std::string robot_tasks_source();

}  // namespace gipo
