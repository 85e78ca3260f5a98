#include "gipo/learner/options.h"

#define GIPO_OPTIONS_FILE "gipo/learner/options.def"
#include "gipo/config/define_groups.def"
