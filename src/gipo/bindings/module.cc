#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "gipo/bindings/bindings.h"
#include "gipo/core/error.h"
#include "gipo/run/version.h"

namespace nb = nanobind;

NB_MODULE(_core, m) {
  m.doc() = "The compiled part of gipo. Use the names of the package `gipo`.";
  nb::set_leak_warnings(false);  // on stderr, of objects that are alive when the interpreter ends
  // The package's users see these as gipo.ConfigError and gipo.RunError.
  nb::exception<gipo::Error> config_error(m, "ConfigError", PyExc_ValueError);
  config_error.doc() = "A mistake of the caller's: names the option or file, the value and what is accepted.";
  nb::exception<gipo::RunError> run_error(m, "RunError", PyExc_RuntimeError);
  run_error.doc() = "A run that cannot go on: disk, diverged training, an environment that fails.";
  m.def("version", &gipo::version, "Version of gipo.");
  m.def("commit", &gipo::commit, "Which sources this was built from, or \"unknown\".");
  gipo::bindings::add_objective(m);
  gipo::bindings::add_studies(m);
  gipo::bindings::add_fields(m);
  gipo::bindings::add_policy(m);
  gipo::bindings::add_envs(m);
  gipo::bindings::add_training(m);
  gipo::bindings::add_episodes(m);
  gipo::bindings::add_vla(m);
}
