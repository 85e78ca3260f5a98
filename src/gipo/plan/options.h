#pragma once

#include "gipo/config/declare.h"

namespace gipo {

enum class RunMode { kLockstep, kAsync };
template <>
inline constexpr auto kWords<RunMode> = std::to_array<Word<RunMode>>({{RunMode::kLockstep, "lockstep"},
                                                                      {RunMode::kAsync, "async"}});

enum class Regime { kStale, kFresh, kOnPolicy, kCustom };
template <>
inline constexpr auto kWords<Regime> = std::to_array<Word<Regime>>({{Regime::kStale, "stale"},
                                                                    {Regime::kFresh, "fresh"},
                                                                    {Regime::kOnPolicy, "on_policy"},
                                                                    {Regime::kCustom, "custom"}});

// Of the threads of an async run.
enum class Pacing { kPaced, kFree };
template <>
inline constexpr auto kWords<Pacing> = std::to_array<Word<Pacing>>({{Pacing::kPaced, "paced"},
                                                                    {Pacing::kFree, "free"}});

}  // namespace gipo

#define GIPO_OPTIONS_FILE "gipo/plan/options.def"
#include "gipo/config/declare_groups.def"
