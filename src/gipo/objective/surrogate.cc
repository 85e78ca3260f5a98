#include "gipo/objective/surrogate.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "gipo/config/did_you_mean.h"
#include "gipo/core/error.h"

namespace gipo {
namespace {

struct Kernels {
  Surrogate::Kernel<float> for_float;
  Surrogate::Kernel<double> for_double;
};

// m2po before it has seen a batch.
struct SecondMoment {
  double most;
};

// The array version of a functor of surrogate_terms.h.
template <class T, class Functor>
Surrogate::Kernel<T> over_arrays(const Functor& functor) {
  return [functor](std::span<const T> log_ratio, std::span<const T> advantage, std::span<T> multiplier,
                   std::span<T> loss, std::span<const T> age) {
    const std::size_t n = log_ratio.size();
    GIPO_CHECK(advantage.size() == n && multiplier.size() == n && loss.size() == n);
    GIPO_CHECK(age.empty() || age.size() == n);
    const Functor local = functor;  // a copy: the writes below cannot alias its parameters
    const auto apply = [&](std::size_t i, const auto& term_of) {
      const SurrogateTerm<T> term = surrogate_term(term_of, log_ratio[i], advantage[i]);
      multiplier[i] = term.multiplier;
      loss[i] = term.loss;
    };
    if constexpr (std::is_same_v<Functor, SecondMoment>) {
      const SecondMomentTerm of_batch{static_cast<double>(largest_kept<T>(log_ratio, local.most))};
      for (std::size_t i = 0; i < n; ++i) apply(i, of_batch);
    } else if constexpr (requires { local.at(0.0); }) {
      for (std::size_t i = 0; i < n; ++i) apply(i, local.at(age.empty() ? 0.0 : static_cast<double>(age[i])));
    } else {
      for (std::size_t i = 0; i < n; ++i) apply(i, local);
    }
  };
}

template <class Functor>
Kernels kernels(const Functor& functor) {
  return {over_arrays<float>(functor), over_arrays<double>(functor)};
}

template <class Weight, PullBack pull_back>
Kernels gipo_kernels(const SurrogateOptions& o) {
  const double pos = o.sigma_pos.value_or(o.sigma), neg = o.sigma_neg.value_or(o.sigma);
  if (o.sigma_growth > 0) return kernels(AgedGipoTerm<Weight, pull_back>{pos, neg, o.sigma_gap, o.sigma_growth});
  return kernels(GipoTerm<Weight, pull_back>{pos, neg, Weight::log_bound(neg)});  // the cap is for negative advantages
}

template <class Weight>
Kernels gipo_kernels(const SurrogateOptions& o) {
  switch (o.pull_back) {
    case PullBack::kDamped:
      return gipo_kernels<Weight, PullBack::kDamped>(o);
    case PullBack::kPositive:
      return gipo_kernels<Weight, PullBack::kPositive>(o);
    case PullBack::kBoth:
      return gipo_kernels<Weight, PullBack::kBoth>(o);
  }
  GIPO_NOT_REACHED();
}

struct Entry {
  std::string_view name, summary;
  std::array<std::string_view, 7> options;  // the keys it reads; the rest empty
  bool clips_to_zero;
  Kernels (*make)(const SurrogateOptions&);
};

// Every surrogate, once. A new one is one more functor in surrogate_terms.h and one more entry.
constexpr Entry kEntries[] = {
    {"gipo",
     "The ratio times a smooth trust weight in log-ratio space; the weight is not differentiated.",
     {"sigma", "sigma_pos", "sigma_neg", "kernel", "pull_back", "sigma_growth", "sigma_gap"},
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
    {"m2po",
     "The plain ratio of the samples that are left when those with the largest log ratios are taken out of the batch.",
     {"moment_max"},
     true,
     [](const SurrogateOptions& o) { return kernels(SecondMoment{o.moment_max}); }},
    {"topr",
     "Weight 1 where the advantage is positive; the ratio cut at 1 where it is negative.",
     {},
     false,
     [](const SurrogateOptions&) { return kernels(ToprTerm{}); }},
};

}  // namespace

Surrogate::Surrogate(const SurrogateOptions& options) {
  for (const Entry& entry : kEntries) {
    if (entry.name != options.name) continue;
    Kernels made = entry.make(options);
    float_kernel_ = std::move(made.for_float);
    double_kernel_ = std::move(made.for_double);
    clips_to_zero_ = entry.clips_to_zero;
    reads_age_ = entry.name == "gipo" && options.sigma_growth > 0;
    centred_ = options.centre == Centre::kProximal;
    importance_max_ = options.importance_max;
    return;
  }
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  throw Error(fmt::format("surrogate.name = {} is not known{}; known: {}", options.name,
                          did_you_mean(options.name, names), fmt::join(names, ", ")));
}

// The mean square grows with the bound: halving, over the bits of the numbers, finds it without sorting them.
template <class T>
T largest_kept(std::span<const T> log_ratio, double most) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const auto kept = [&](T bound) {
    double squares = 0, count = 0;
    for (const T x : log_ratio) {
      const T size = std::abs(clamped_log_ratio(x));
      if (!(size <= bound)) continue;
      squares += static_cast<double>(size) * static_cast<double>(size);
      count += 1;
    }
    return squares <= most * count;
  };
  Bits low = 0, high = std::bit_cast<Bits>(static_cast<T>(kMaxLogRatio)) + 1;  // kept; not kept, or beyond all
  while (high - low > 1) {
    const Bits middle = low + (high - low) / 2;
    (kept(std::bit_cast<T>(middle)) ? low : high) = middle;
  }
  return std::bit_cast<T>(low);
}
template float largest_kept<float>(std::span<const float> log_ratio, double most);
template double largest_kept<double>(std::span<const double> log_ratio, double most);

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
