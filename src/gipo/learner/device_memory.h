#pragma once

#include <functional>
#include <string>

#include "gipo/learner/learner.h"

namespace gipo {

// Of a learner on a CUDA device, in bytes: the networks that libtorch runs, with what they keep for their gradients.
double torch_device_bytes(const LearnerSetup& setup);

// Throws Error, naming what was asked for, what is free and the largest batch that fits, where `bytes` says that a learner
// takes more than that. place: the option that chose the device.
void refuse_what_the_device_lacks(const LearnerSetup& setup, const std::string& place,
                                  const std::function<double(const LearnerSetup&)>& bytes, double free, double total);

}  // namespace gipo
