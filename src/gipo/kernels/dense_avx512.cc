#if defined(__AVX512F__) && defined(__AVX512DQ__)
#include "gipo/kernels/dense_impl.h"

namespace gipo {
extern const DenseKernels<float> kDenseAvx512;
const DenseKernels<float> kDenseAvx512 = table<float>("avx512");
}  // namespace gipo
#endif
