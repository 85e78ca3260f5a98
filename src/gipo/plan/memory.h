#pragma once

#include <string>
#include <vector>

#include "gipo/io/memory.h"
#include "gipo/plan/plan.h"

namespace gipo {

// What a run takes of memory at its peak, in parts; of the worker processes of a bridged task too.
struct MemoryNeed {
  struct Part {
    std::string name;  // as --json has it
    double bytes = 0;
    std::vector<std::string> options = {};  // that make it smaller, with their values
  };
  std::vector<Part> parts;
  double total() const;
};
MemoryNeed memory_need(const Plan& plan);

std::string in_bytes(double bytes);  // "76.9 MB"

// Throws Error where the run needs more than there is: how much, of what, and which options make it less. To be called
// before anything is created.
void refuse_what_does_not_fit(const Plan& plan, const Origins& origins, const MemoryLimit& limit = memory_limit());

}  // namespace gipo
