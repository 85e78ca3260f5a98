#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gipo {

template <class T>
using Maybe = std::optional<T>;
using Widths = std::vector<std::int64_t>;

// One struct per group (RunOptions, EnvOptions, ...), its members the options of options.def with their defaults.
#define GIPO_GROUP_BEGIN(group, Type, help) struct Type##Options {
#define GIPO_OPTION(type, name, value, accepted, help) type name = value;
#define GIPO_GROUP_END(group, Type) \
  }                                 \
  ;
#include "gipo/core/options.def"

// A whole run, as the user gave it. What follows from it (the dial, names) is resolved in train/plan.h.
struct Config {
#define GIPO_GROUP_BEGIN(group, Type, help) Type##Options group;
#define GIPO_OPTION(type, name, value, accepted, help)
#define GIPO_GROUP_END(group, Type)
#include "gipo/core/options.def"
};

}  // namespace gipo
