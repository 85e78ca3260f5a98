#include "gipo/objective/options.h"

#define GIPO_OPTIONS_FILE "gipo/objective/options.def"
#include "gipo/config/define_groups.def"
