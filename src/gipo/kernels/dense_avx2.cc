#if defined(__AVX2__) && defined(__FMA__)
#include "gipo/kernels/dense_impl.h"

namespace gipo {
extern const DenseKernels<float> kDenseAvx2;
const DenseKernels<float> kDenseAvx2 = table<float>("avx2");
}  // namespace gipo
#endif
