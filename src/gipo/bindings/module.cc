#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "gipo/bindings/bindings.h"
#include "gipo/core/error.h"
#include "gipo/train/version.h"

namespace nb = nanobind;

NB_MODULE(_core, m) {
  m.doc() = "The compiled part of gipo. Use the names of the package `gipo`.";
  // The package's users see these as gipo.ConfigError and gipo.RunError.
  nb::exception<gipo::Error>(m, "ConfigError", PyExc_ValueError).doc() =
      "A mistake of the caller's: names the option or file, the value and what is accepted.";
  nb::exception<gipo::RunError>(m, "RunError", PyExc_RuntimeError).doc() =
      "A run that cannot go on: disk, diverged training, an environment that fails.";
  m.def("version", &gipo::version, "Version of gipo.");
  m.def("commit", &gipo::commit, "Which sources this was built from, or \"unknown\".");
  gipo::bindings::add_objective(m);
  gipo::bindings::add_studies(m);
  gipo::bindings::add_policy(m);
  gipo::bindings::add_training(m);
}
