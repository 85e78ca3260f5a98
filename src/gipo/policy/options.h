#pragma once

#include "gipo/config/declare.h"
#include "gipo/kernels/dense.h"

namespace gipo {

// Hidden layers always have one: kNone is no word.
template <>
inline constexpr auto kWords<Activation> = std::to_array<Word<Activation>>({{Activation::kTanh, "tanh"},
                                                                            {Activation::kRelu, "relu"}});

enum class FirstWeights { kOrthogonal, kUniform };
template <>
inline constexpr auto kWords<FirstWeights> =
    std::to_array<Word<FirstWeights>>({{FirstWeights::kOrthogonal, "orthogonal"}, {FirstWeights::kUniform, "uniform"}});

// What a policy has of its episode beside the observation.
enum class Memory { kNone, kGru, kTransformer };
template <>
inline constexpr auto kWords<Memory> = std::to_array<Word<Memory>>({{Memory::kNone, "none"},
                                                                    {Memory::kGru, "gru"},
                                                                    {Memory::kTransformer, "transformer"}});

// What the user asks for; the task's actions then decide on a DistributionSpec.
enum class DistributionChoice { kAuto, kCategorical, kBinned, kGaussian };
template <>
inline constexpr auto kWords<DistributionChoice> =
    std::to_array<Word<DistributionChoice>>({{DistributionChoice::kAuto, "auto"},
                                             {DistributionChoice::kCategorical, "categorical"},
                                             {DistributionChoice::kBinned, "binned"},
                                             {DistributionChoice::kGaussian, "gaussian"}});

}  // namespace gipo

#define GIPO_OPTIONS_FILE "gipo/policy/options.def"
#include "gipo/config/declare_groups.def"
