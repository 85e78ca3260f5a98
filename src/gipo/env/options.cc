#include "gipo/env/options.h"

#define GIPO_OPTIONS_FILE "gipo/env/options.def"
#include "gipo/config/define_groups.def"
