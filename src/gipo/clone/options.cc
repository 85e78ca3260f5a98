#include "gipo/clone/options.h"

#define GIPO_OPTIONS_FILE "gipo/clone/options.def"
#include "gipo/config/define_groups.def"
