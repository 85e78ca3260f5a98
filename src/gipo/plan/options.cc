#include "gipo/plan/options.h"

#define GIPO_OPTIONS_FILE "gipo/plan/options.def"
#include "gipo/config/define_groups.def"
