// What the physics of the classic tasks have in common. They compile for host and device: one definition for the
// environments of the processor and for runs on a card (population/).
#pragma once

#include "gipo/core/device.h"

namespace gipo {

// What a step of a classic task came to.
struct ClassicOutcome {
  double reward = 0;
  bool terminated = false;
};

// The nearest float32. Through memory: g++ 12.2 at -O2 can drop the narrowing when it packs two such conversions.
GIPO_HD inline double as_float32(double x) {
  const volatile float narrow = static_cast<float>(x);
  return narrow;
}

// Each task is a struct of static functions over its state, which is kState numbers of type Real:
//
//   template <class Random> static void start(Real* state, Random& random);   first state of an episode
//   static ClassicOutcome advance(Real* state, double action);                one step
//   static void observe(const Real* state, double* observation);              [kObservation], before the narrowing to float

}  // namespace gipo
