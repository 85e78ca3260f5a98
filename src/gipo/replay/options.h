#pragma once

#include "gipo/config/declare.h"

namespace gipo {

enum class Sampling {
  kSegments,     // runs of steps, most of them whole segments, so that advantages can be recomputed on them
  kTransitions,  // single steps, uniformly
  kEpochs,       // single steps in shuffled passes over all that is held
};
template <>
inline constexpr auto kWords<Sampling> = std::to_array<Word<Sampling>>({{Sampling::kSegments, "segments"},
                                                                        {Sampling::kTransitions, "transitions"},
                                                                        {Sampling::kEpochs, "epochs"}});

}  // namespace gipo

#define GIPO_OPTIONS_FILE "gipo/replay/options.def"
#include "gipo/config/declare_groups.def"
