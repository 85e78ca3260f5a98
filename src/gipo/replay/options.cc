#include "gipo/replay/options.h"

#define GIPO_OPTIONS_FILE "gipo/replay/options.def"
#include "gipo/config/define_groups.def"
