#pragma once

#include <string>

#include "gipo/objective/certificate.h"

namespace gipo {

// What a run of GIPO measured, as inputs of its certificate: sigma, discount and batch from its config; KL(mu, pi) and
// the bound on |A| as the largest over the logged updates in the last fifth of its env steps. A run measures means over
// samples, not maxima over states, so what follows from them is an estimate. Throws Error, naming path or key, for
// another surrogate, a run without measurements, or a file of another version.
CertificateInputs measure_run(const std::string& run_dir);

}  // namespace gipo
