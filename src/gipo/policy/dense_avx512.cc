#if defined(__AVX512F__) && defined(__AVX512DQ__)
#include "gipo/policy/dense_impl.h"

namespace gipo {
extern const DenseKernels<float> kDenseAvx512;
const DenseKernels<float> kDenseAvx512 = table<float>("avx512");
}  // namespace gipo
#endif
