#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gipo/config/option_value.h"
#include "gipo/config/words.h"

namespace gipo {

// Options are declared in the folder that uses them, each once, in a list options.def:
//
//   GIPO_GROUP_BEGIN(replay, Replay, "What the group is about.")
//   GIPO_OPTION(type, name, default, accepted values, "What it means.")
//   GIPO_GROUP_END(replay, Replay)
//
// options.h of the folder makes the struct ReplayOptions of it, with the options as members:
//
//   #define GIPO_OPTIONS_FILE "gipo/replay/options.def"
//   #include "gipo/config/declare_groups.def"
//
// and options.cc the table (config/option.h), with define_groups.def in the same way. File parser, --set, `gipo list
// options`, docs/options.md and the saved config follow from the table.
//
// The type is bool, std::int64_t, double, std::string, Widths or an enum with words (config/words.h), or a Maybe of
// these, which may stay unset; its help says what follows then. What may be accepted: config/accepted.h.
template <class T>
using Maybe = std::optional<T>;

template <class Of>
struct OptionGroup;

// The options of the struct Of.
template <class Of>
const OptionGroup<Of>& group_of();

}  // namespace gipo
