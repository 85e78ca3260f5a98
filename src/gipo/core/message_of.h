#pragma once

#include <string>

#include "gipo/core/error.h"

namespace gipo {

// For tests: what f() throws says.
template <class E = Error, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace gipo
