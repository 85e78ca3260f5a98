#pragma once

#include <string>

namespace gipo {

std::string version();  // "0.1.0"
std::string commit();   // what git describes the sources as when the build was configured, or "unknown"

}  // namespace gipo
