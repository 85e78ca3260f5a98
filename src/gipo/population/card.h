// What code of a run needs to be compiled twice: for a block of threads on a card, and for one thread of the processor, its
// host twin, which the ordinary tests run.
//
// Such code is given a team: rank() of size() threads that all call the same functions, share what they are given
// pointers to, and meet at sync(). sums(values) and largest(value) give every thread the result over all of them, added up
// in an order that depends on the size of the team alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "gipo/core/device.h"

#if defined(__CUDACC__)
#define GIPO_CARD __device__ inline
#else
#define GIPO_CARD inline
#endif

namespace gipo::population {

// The host twin's team.
struct OneThread {
  static constexpr int rank() { return 0; }
  static constexpr int size() { return 1; }
  static void sync() {}
  template <int kCount>
  static void sums(double (&)[kCount]) {}
  static float largest(float value) { return value; }
};

template <class T>
GIPO_CARD bool is_finite(T x) {
  return std::fabs(x) <= std::numeric_limits<T>::max();
}

// Four floats that are read and written at once; both sides are aligned to 16 bytes.
struct Four {
  float at[4];
};
GIPO_CARD Four load_four(const float* from) {
#if defined(__CUDA_ARCH__)
  const float4 v = *reinterpret_cast<const float4*>(from);
  return {{v.x, v.y, v.z, v.w}};
#else
  Four v;
  std::memcpy(v.at, from, sizeof v.at);
  return v;
#endif
}
GIPO_CARD void store_four(float* to, const Four& v) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<float4*>(to) = {v.at[0], v.at[1], v.at[2], v.at[3]};
#else
  std::memcpy(to, v.at, sizeof v.at);
#endif
}

}  // namespace gipo::population
