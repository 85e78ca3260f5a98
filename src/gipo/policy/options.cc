#include "gipo/policy/options.h"

#define GIPO_OPTIONS_FILE "gipo/policy/options.def"
#include "gipo/config/define_groups.def"
