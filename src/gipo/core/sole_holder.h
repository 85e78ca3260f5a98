#pragma once

#include <memory>

namespace gipo {

// Whether nobody else holds it; all that others did with it is done then. For what nobody can come to hold meanwhile.
template <class T>
bool sole_holder(const std::shared_ptr<T>& held) {
  // Taking a reference orders what follows after the last reader's release of its own; use_count alone would not.
  return held.use_count() == 1 && std::shared_ptr<T>(held).use_count() == 2;
}

}  // namespace gipo
