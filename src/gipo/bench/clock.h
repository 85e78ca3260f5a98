#pragma once

#include <chrono>

namespace gipo {

inline double wall_time() {  // seconds since 1970
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}
inline double steady_time() {  // seconds since some moment; it never jumps
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace gipo
