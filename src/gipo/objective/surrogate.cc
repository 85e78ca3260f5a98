#include "gipo/objective/surrogate.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

#include "gipo/config/did_you_mean.h"
#include "gipo/core/error.h"

namespace gipo {
namespace {

struct Kernels {
  Surrogate::Kernel<float> for_float;
  Surrogate::Kernel<double> for_double;
};

// The array version of a functor of surrogate_terms.h.
template <class T, class Functor>
Surrogate::Kernel<T> over_arrays(const Functor& functor) {
  return [functor](std::span<const T> log_ratio, std::span<const T> advantage, std::span<T> multiplier,
                   std::span<T> loss) {
    const std::size_t n = log_ratio.size();
    GIPO_CHECK(advantage.size() == n && multiplier.size() == n && loss.size() == n);
    const Functor local = functor;  // a copy: the writes below cannot alias its parameters
    for (std::size_t i = 0; i < n; ++i) {
      const SurrogateTerm<T> term = surrogate_term(local, log_ratio[i], advantage[i]);
      multiplier[i] = term.multiplier;
      loss[i] = term.loss;
    }
  };
}

template <class Functor>
Kernels kernels(const Functor& functor) {
  return {over_arrays<float>(functor), over_arrays<double>(functor)};
}

template <class Weight>
Kernels gipo_kernels(const SurrogateOptions& o) {
  const double pos = o.sigma_pos.value_or(o.sigma), neg = o.sigma_neg.value_or(o.sigma);
  const double bound = Weight::log_bound(neg);  // the cap acts on negative advantages only
  switch (o.pull_back) {
    case PullBack::kDamped:
      return kernels(GipoTerm<Weight, PullBack::kDamped>{pos, neg, bound});
    case PullBack::kPositive:
      return kernels(GipoTerm<Weight, PullBack::kPositive>{pos, neg, bound});
    case PullBack::kBoth:
      return kernels(GipoTerm<Weight, PullBack::kBoth>{pos, neg, bound});
  }
  GIPO_NOT_REACHED();
}

struct Entry {
  std::string_view name, summary;
  std::array<std::string_view, 5> options;  // the keys it reads; the rest empty
  bool clips_to_zero;
  Kernels (*make)(const SurrogateOptions&);
};

// Every surrogate, once. A new one is one more functor in surrogate_terms.h and one more entry.
constexpr Entry kEntries[] = {
    {"gipo",
     "The ratio times a smooth trust weight in log-ratio space; the weight is not differentiated.",
     {"sigma", "sigma_pos", "sigma_neg", "kernel", "pull_back"},
     false,
     [](const SurrogateOptions& o) {
       switch (o.kernel) {
         case TrustKernel::kGaussian:
           return gipo_kernels<GaussianWeight>(o);
         case TrustKernel::kLaplacian:
           return gipo_kernels<LaplacianWeight>(o);
         case TrustKernel::kCauchy:
           return gipo_kernels<CauchyWeight>(o);
       }
       GIPO_NOT_REACHED();
     }},
    {"ppo",
     "Clipped ratio: no gradient once a sample has moved past 1 +- epsilon.",
     {"epsilon"},
     true,
     [](const SurrogateOptions& o) {
       return kernels(ClippedRatioTerm{o.epsilon, HUGE_VAL});
     }},
    {"dual_clip",
     "ppo that also cuts negative advantages beyond a large ratio.",
     {"epsilon", "dual_clip"},
     true,
     [](const SurrogateOptions& o) {
       return kernels(ClippedRatioTerm{o.epsilon, o.dual_clip});
     }},
    {"sapo",
     "A sigmoid gate on the ratio, with a temperature for each sign of the advantage.",
     {"tau_pos", "tau_neg"},
     false,
     [](const SurrogateOptions& o) {
       return kernels(SapoTerm{o.tau_pos, o.tau_neg});
     }},
    {"no_clip",
     "The plain importance ratio.",
     {},
     false,
     [](const SurrogateOptions&) { return kernels(NoClipTerm{}); }},
    {"cispo",
     "The ratio clipped to 1 +- epsilon as a weight on log pi: no sample loses its gradient.",
     {"epsilon"},
     false,
     [](const SurrogateOptions& o) { return kernels(CispoTerm{o.epsilon}); }},
    {"truncated",
     "The ratio cut at rho_max as a weight on log pi, as in V-trace.",
     {"rho_max"},
     false,
     [](const SurrogateOptions& o) { return kernels(TruncatedTerm{o.rho_max}); }},
    {"ce_gppo",
     "ppo that keeps a bounded gradient where ppo has none: beta times the edge of the clip.",
     {"epsilon", "beta_low", "beta_high"},
     false,
     [](const SurrogateOptions& o) {
       return kernels(CeGppoTerm{o.epsilon, o.beta_low, o.beta_high});
     }},
};

}  // namespace

Surrogate::Surrogate(const SurrogateOptions& options) {
  for (const Entry& entry : kEntries) {
    if (entry.name != options.name) continue;
    Kernels made = entry.make(options);
    float_kernel_ = std::move(made.for_float);
    double_kernel_ = std::move(made.for_double);
    clips_to_zero_ = entry.clips_to_zero;
    return;
  }
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  throw Error(fmt::format("surrogate.name = {} is not known{}; known: {}", options.name,
                          did_you_mean(options.name, names), fmt::join(names, ", ")));
}

const std::vector<SurrogateInfo>& registered_surrogates() {
  static const std::vector<SurrogateInfo> infos = [] {
    std::vector<SurrogateInfo> list;
    for (const Entry& entry : kEntries) {
      list.push_back({std::string(entry.name), std::string(entry.summary), {}});
      for (const std::string_view key : entry.options) {
        if (!key.empty()) list.back().options.emplace_back(key);
      }
    }
    return list;
  }();
  return infos;
}

}  // namespace gipo
