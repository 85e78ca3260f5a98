#pragma once

#include <chrono>

namespace gipo {

// For waits, limits and what is shown; no result of training reads it.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace gipo
