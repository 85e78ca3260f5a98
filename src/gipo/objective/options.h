#pragma once

#include "gipo/config/declare.h"
#include "gipo/objective/surrogate_choice.h"

namespace gipo {

template <>
inline constexpr auto kWords<TrustKernel> = std::to_array<Word<TrustKernel>>({{TrustKernel::kGaussian, "gaussian"},
                                                                              {TrustKernel::kLaplacian, "laplacian"},
                                                                              {TrustKernel::kCauchy, "cauchy"}});

template <>
inline constexpr auto kWords<PullBack> = std::to_array<Word<PullBack>>({{PullBack::kDamped, "damped"},
                                                                        {PullBack::kPositive, "positive"},
                                                                        {PullBack::kBoth, "both"}});

// The policy that a trust region is drawn about.
enum class Centre { kBehaviour, kProximal };
template <>
inline constexpr auto kWords<Centre> = std::to_array<Word<Centre>>({{Centre::kBehaviour, "behaviour"},
                                                                    {Centre::kProximal, "proximal"}});

// What a ratio is taken of: the whole action, each dimension of it, or as many neighbours each.
enum class RatioOf { kJoint, kDimension, kGroup };
template <>
inline constexpr auto kWords<RatioOf> = std::to_array<Word<RatioOf>>({{RatioOf::kJoint, "joint"},
                                                                      {RatioOf::kDimension, "dimension"},
                                                                      {RatioOf::kGroup, "group"}});

enum class AdvantageMode { kVtrace, kGae, kStored, kGroup };
template <>
inline constexpr auto kWords<AdvantageMode> = std::to_array<Word<AdvantageMode>>({{AdvantageMode::kVtrace, "vtrace"},
                                                                                  {AdvantageMode::kGae, "gae"},
                                                                                  {AdvantageMode::kStored, "stored"},
                                                                                  {AdvantageMode::kGroup, "group"}});

// Whether advantages are made at collection and kept with the data.
inline bool made_at_collection(AdvantageMode mode) {
  return mode == AdvantageMode::kStored || mode == AdvantageMode::kGroup;
}

}  // namespace gipo

#define GIPO_OPTIONS_FILE "gipo/objective/options.def"
#include "gipo/config/declare_groups.def"
