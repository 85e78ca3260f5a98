#pragma once

#include "gipo/core/device.h"

namespace gipo {

// tanh with an error below 4e-7, as x P(x^2) / Q(x^2), fitted over |x| <= 7.9 and constant beyond; NaN stays NaN. The
// dense kernels have the same for vectors. Compiles for host and device.
GIPO_HD inline float fast_tanh(float x) {
  x = x > 7.9f ? 7.9f : x < -7.9f ? -7.9f : x;
  const float u = x * x, u2 = u * u;
  float p = u * 2.4105059961976316e-11f - 1.4906262890690414e-08f;
  p = p * u2 + (u * 9.939211849996354e-06f + 0.002992101013660431f);
  p = p * u2 + (u * 0.1298491358757019f + 1.0f);
  const float q = (u * 0.00023808731930330396f + 0.024053111672401428f) * u2 + (u * 0.46318233013153076f + 1.0f);
  return x * p / q;
}

}  // namespace gipo
