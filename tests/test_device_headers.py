"""The headers marked as compiling for devices do so: no function of theirs calls one that only the host has."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# What a device has of the standard library, in place of the headers that the host has: no CUDA is needed to check.
SOURCE = """
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
namespace std {
#define GIPO_FUNCTION(name) __host__ __device__ float name(float); __host__ __device__ double name(double);
GIPO_FUNCTION(exp) GIPO_FUNCTION(log) GIPO_FUNCTION(fabs)
double sqrt(double);
double log1p(double);
template <class T> struct numeric_limits { static constexpr T max() { return T(3e38f); } };
using size_t = decltype(sizeof(0));
using uint8_t = unsigned char;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
template <bool B, class X, class Y> struct conditional { using type = X; };
template <class X, class Y> struct conditional<false, X, Y> { using type = Y; };
template <bool B, class X, class Y> using conditional_t = typename conditional<B, X, Y>::type;
template <class To, class From> __host__ __device__ constexpr To bit_cast(From x) { return __builtin_bit_cast(To, x); }
}
#include "gipo/objective/advantage_terms.h"
#include "gipo/objective/surrogate_terms.h"
#include "gipo/policy/distribution_terms.h"
using namespace gipo;

template <class T>
__device__ void use(T* x, const std::uint8_t* mask) {
  T s = surrogate_term(GipoTerm<GaussianWeight, PullBack::kDamped>{1, 1, 1}, x[0], x[1]).loss;
  s += surrogate_term(GipoTerm<LaplacianWeight, PullBack::kPositive>{1, 1, 1}, x[0], x[1]).loss;
  s += surrogate_term(GipoTerm<CauchyWeight, PullBack::kBoth>{1, 1, 1}, x[0], x[1]).loss;
  s += surrogate_term(ClippedRatioTerm{1, 1}, x[0], x[1]).loss;
  s += surrogate_term(SapoTerm{1, 1}, x[0], x[1]).loss;
  s += surrogate_term(NoClipTerm{}, x[0], x[1]).loss;
  s += surrogate_term(CispoTerm{1}, x[0], x[1]).loss;
  s += surrogate_term(TruncatedTerm{1}, x[0], x[1]).loss;
  s += surrogate_term(CeGppoTerm{1, 1, 1}, x[0], x[1]).loss;
  s += largest_bound<T>([&](T bound) { return bound < x[0]; });
  GaeNext<T> gae{x[0]};
  VtraceNext<T> vtrace{x[0], x[0]};
  s += gae_step(x[0], x[1], x[2], x[3], gae).target;
  s += vtrace_step(x[0], x[1], x[2], VtraceLimits<T>{x[0], x[1], x[2], x[3]}, vtrace).target;
  GaussianTerms<T> pi{x[0], x[1], x[2]}, other{x[3], x[4], x[5]};
  s += gaussian_log_prob(pi, x[0]) + gaussian_entropy(x[0]) + gaussian_kl(pi, other);
  GaussianGradient<T> d = gaussian_gradient(pi, x[0], x[1], x[2]);
  add_gaussian_kl(pi, other, x[0], d);
  s += categorical_terms(x, mask, 4, x + 4, x + 8) + add_categorical_kl(x[0], x, x, x, 4) + d.mean;
  categorical_gradient(x, x, x, 4, 2, x[0], x[1], x[2], x[3], x + 4);
  x[0] = s;
}
__global__ void kernel(float* f, double* d, const std::uint8_t* mask) {
  use(f, mask);
  use(d, mask);
}
"""


def compile_for(side, folder, *flags):
    for header in ("bit", "cmath", "limits", "cstddef", "cstdint", "type_traits"):
        (folder / header).touch()
    (folder / "use.cu").write_text(SOURCE)
    return subprocess.run(
        ["clang++", "-std=c++20", "-x", "cuda", f"--cuda-{side}-only", "--cuda-gpu-arch=sm_70", "-nocudainc",
         "-nocudalib", "-nostdinc++", "-I", folder, "-I", ROOT / "src", "-fsyntax-only", *flags, folder / "use.cu"],
        capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.skipif(not shutil.which("clang++"), reason="clang++ is not installed")
@pytest.mark.parametrize("side", ["device", "host"])
def test_terms_compile(tmp_path, side):
    done = compile_for(side, tmp_path)
    assert done.returncode == 0, done.stderr
    if side == "device":  # the check can fail: unmarked functions are the host's
        assert compile_for(side, tmp_path, "-DGIPO_HD=").returncode != 0
