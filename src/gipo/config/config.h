#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gipo/config/option_value.h"

namespace gipo {

template <class T>
using Maybe = std::optional<T>;

// One struct per group (RunOptions, EnvOptions, ...), its members the options of options.def with their defaults.
#define GIPO_GROUP_BEGIN(group, Type, help) struct Type##Options {
#define GIPO_OPTION(type, name, value, accepted, help) type name = value;
#define GIPO_GROUP_END(group, Type) \
  }                                 \
  ;
#include "gipo/config/options.def"

// A whole run, as the user gave it. What follows from it (the dial, names) is resolved in train/plan.h.
struct Config {
#define GIPO_GROUP_BEGIN(group, Type, help) Type##Options group;
#define GIPO_OPTION(type, name, value, accepted, help)
#define GIPO_GROUP_END(group, Type)
#include "gipo/config/options.def"

  // The table [env.options]: which there are, the task says (env/env_options.h). Complete in a Plan, as given elsewhere.
  OptionValues env_options;
};

}  // namespace gipo
