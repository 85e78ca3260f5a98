// Which surrogate, and with which numbers: what a backend hands to its kernels. Compiles for host and device.
#pragma once

#include <cmath>

#include "gipo/objective/surrogate_terms.h"

namespace gipo {

// The shape of GIPO's trust weight over the log ratio.
enum class TrustKernel { kGaussian, kLaplacian, kCauchy };

// m2po before it has seen a batch.
struct SecondMoment {
  double most;
};

enum class SurrogateKind { kGipo, kAgedGipo, kClippedRatio, kSapo, kNoClip, kCispo, kTruncated, kCeGppo, kM2po, kTopr };

struct SurrogateChoice {
  SurrogateKind kind = SurrogateKind::kGipo;
  TrustKernel kernel = TrustKernel::kGaussian;
  PullBack pull_back = PullBack::kDamped;
  double first = 0, second = 0, third = 0, fourth = 0;  // in the order of the functor's members
};

template <class Weight, PullBack pull_back, class F>
GIPO_HD inline void visit_gipo(const SurrogateChoice& c, F&& f) {
  // The cap is for negative advantages.
  if (c.kind == SurrogateKind::kGipo)
    return f(GipoTerm<Weight, pull_back>{c.first, c.second, Weight::log_bound(c.second)});
  f(AgedGipoTerm<Weight, pull_back>{c.first, c.second, c.third, c.fourth});
}

template <class Weight, class F>
GIPO_HD inline void visit_gipo(const SurrogateChoice& c, F&& f) {
  switch (c.pull_back) {
    case PullBack::kDamped:
      return visit_gipo<Weight, PullBack::kDamped>(c, f);
    case PullBack::kPositive:
      return visit_gipo<Weight, PullBack::kPositive>(c, f);
    case PullBack::kBoth:
      return visit_gipo<Weight, PullBack::kBoth>(c, f);
  }
}

// Calls f with the functor of surrogate_terms.h that is meant; of m2po with SecondMoment.
template <class F>
GIPO_HD inline void visit_surrogate(const SurrogateChoice& c, F&& f) {
  switch (c.kind) {
    case SurrogateKind::kGipo:
    case SurrogateKind::kAgedGipo:
      switch (c.kernel) {
        case TrustKernel::kGaussian:
          return visit_gipo<GaussianWeight>(c, f);
        case TrustKernel::kLaplacian:
          return visit_gipo<LaplacianWeight>(c, f);
        case TrustKernel::kCauchy:
          return visit_gipo<CauchyWeight>(c, f);
      }
      return;
    case SurrogateKind::kClippedRatio:
      return f(ClippedRatioTerm{c.first, c.second});
    case SurrogateKind::kSapo:
      return f(SapoTerm{c.first, c.second});
    case SurrogateKind::kNoClip:
      return f(NoClipTerm{});
    case SurrogateKind::kCispo:
      return f(CispoTerm{c.first});
    case SurrogateKind::kTruncated:
      return f(TruncatedTerm{c.first});
    case SurrogateKind::kCeGppo:
      return f(CeGppoTerm{c.first, c.second, c.third});
    case SurrogateKind::kM2po:
      return f(SecondMoment{c.first});
    case SurrogateKind::kTopr:
      return f(ToprTerm{});
  }
}

}  // namespace gipo
