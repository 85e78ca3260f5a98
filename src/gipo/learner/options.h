#pragma once

#include "gipo/config/declare.h"
#include "gipo/learner/product_kind.h"
#include "gipo/learner/schedule.h"

namespace gipo {

template <>
inline constexpr auto kWords<Schedule> = std::to_array<Word<Schedule>>({{Schedule::kConstant, "constant"},
                                                                        {Schedule::kLinear, "linear"},
                                                                        {Schedule::kCosine, "cosine"}});

// Of products on a device.
enum class Precision { kFloat32, kBf16 };
template <>
inline constexpr auto kWords<Precision> = std::to_array<Word<Precision>>({{Precision::kFloat32, "float32"},
                                                                          {Precision::kBf16, "bf16"}});

// Which policy is published, evaluated and saved.
enum class Published { kLatest, kAverage };
template <>
inline constexpr auto kWords<Published> = std::to_array<Word<Published>>({{Published::kLatest, "latest"},
                                                                          {Published::kAverage, "average"}});

template <>
inline constexpr auto kWords<ProductKind> = std::to_array<Word<ProductKind>>({{ProductKind::kBf16x3, "bf16x3"},
                                                                              {ProductKind::kTf32x3, "tf32x3"},
                                                                              {ProductKind::kTf32, "tf32"},
                                                                              {ProductKind::kFloat, "float"}});

}  // namespace gipo

#define GIPO_OPTIONS_FILE "gipo/learner/options.def"
#include "gipo/config/declare_groups.def"
