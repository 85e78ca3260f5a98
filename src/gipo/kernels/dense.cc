#include "gipo/kernels/dense.h"

#include <array>

#include "gipo/kernels/dense_impl.h"

namespace gipo {
namespace {

constexpr DenseKernels<float> kBaselineFloat = table<float>("baseline");
constexpr DenseKernels<double> kBaselineDouble = table<double>("baseline");

struct Versions {
  std::array<const DenseKernels<float>*, 3> all{};
  std::size_t count = 0;
  void add(const DenseKernels<float>& kernels) { all[count++] = &kernels; }
};

}  // namespace

#if defined(__x86_64__)
extern const DenseKernels<float> kDenseAvx2, kDenseAvx512;
#endif

namespace {

const Versions& versions() {
  static const Versions found = [] {
    Versions v;
    v.add(kBaselineFloat);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) v.add(kDenseAvx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) v.add(kDenseAvx512);
#endif
    return v;
  }();
  return found;
}

}  // namespace

std::size_t dense_versions() { return versions().count; }
const DenseKernels<float>& dense_version(std::size_t i) { return *versions().all[i]; }

template <>
const DenseKernels<float>& dense_kernels<float>() {
  return dense_version(dense_versions() - 1);
}
template <>
const DenseKernels<double>& dense_kernels<double>() {
  return kBaselineDouble;
}

}  // namespace gipo
