#pragma once

#include "gipo/config/declare.h"
#include "gipo/learner/precision.h"

namespace gipo {

// Of the learning rates, after the warm-up.
enum class Schedule { kConstant, kLinear, kCosine };
template <>
inline constexpr auto kWords<Schedule> = std::to_array<Word<Schedule>>({{Schedule::kConstant, "constant"},
                                                                        {Schedule::kLinear, "linear"},
                                                                        {Schedule::kCosine, "cosine"}});

// Which policy is published, evaluated and saved.
enum class Published { kLatest, kAverage };
template <>
inline constexpr auto kWords<Published> = std::to_array<Word<Published>>({{Published::kLatest, "latest"},
                                                                          {Published::kAverage, "average"}});

template <>
inline constexpr auto kWords<Precision> = std::to_array<Word<Precision>>({{Precision::kTf32x3, "tf32x3"},
                                                                          {Precision::kTf32, "tf32"},
                                                                          {Precision::kFloat, "float"}});

}  // namespace gipo

#define GIPO_OPTIONS_FILE "gipo/learner/options.def"
#include "gipo/config/declare_groups.def"
