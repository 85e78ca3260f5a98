#pragma once

#include "gipo/config/declare.h"

#define GIPO_OPTIONS_FILE "gipo/clone/options.def"
#include "gipo/config/declare_groups.def"
