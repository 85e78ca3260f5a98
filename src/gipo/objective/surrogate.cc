#include "gipo/objective/surrogate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "gipo/config/did_you_mean.h"
#include "gipo/core/error.h"

namespace gipo {
namespace {

// What a surrogate says of one sample: m in the gradient m A grad log pi, and minus the objective.
template <class T>
struct Term {
  T multiplier, loss;
};

struct Kernels {
  Surrogate::Kernel<float> for_float;
  Surrogate::Kernel<double> for_double;
};

// The array version of a functor (T log_ratio, T advantage) -> Term<T>.
template <class T, class Functor>
Surrogate::Kernel<T> over_arrays(const Functor& functor) {
  return [functor](std::span<const T> log_ratio, std::span<const T> advantage, std::span<T> multiplier,
                   std::span<T> loss) {
    const std::size_t n = log_ratio.size();
    GIPO_CHECK(advantage.size() == n && multiplier.size() == n && loss.size() == n);
    const Functor term = functor;  // a local copy: the writes below cannot alias its parameters
    constexpr T limit = static_cast<T>(kMaxLogRatio), largest = std::numeric_limits<T>::max();
    for (std::size_t i = 0; i < n; ++i) {
      const Term<T> result = term(std::clamp(log_ratio[i], -limit, limit), advantage[i]);
      multiplier[i] = result.multiplier;
      loss[i] = std::clamp(result.loss, -largest, largest);  // m A may overflow where m and A do not
    }
  };
}

template <class Functor>
Kernels kernels(const Functor& functor) {
  return {over_arrays<float>(functor), over_arrays<double>(functor)};
}

// GIPO's trust weights. multiplier = rho w; log_bound(s) is log of the largest rho w over rho > 1 where there is one:
// the cap of pull_back = both. Where there is none (laplacian with s > 1, cauchy with s >= 1: rho outgrows w) the
// gaussian's cap exp(s^2/2) stands in.
struct Gaussian {
  template <class T>
  static T multiplier(T log_ratio, T sigma) {
    return std::exp(log_ratio - log_ratio * log_ratio / (2 * sigma * sigma));
  }
  static double log_bound(double sigma) { return sigma * sigma / 2; }  // reached at rho = exp(s^2)
};

struct Laplacian {
  template <class T>
  static T multiplier(T log_ratio, T sigma) {
    return std::exp(log_ratio - std::abs(log_ratio) / sigma);
  }
  // rho w = rho^(1 - 1/s) for rho > 1: falls from 1 when s < 1.
  static double log_bound(double sigma) { return sigma <= 1 ? 0 : Gaussian::log_bound(sigma); }
};

struct Cauchy {
  template <class T>
  static T multiplier(T log_ratio, T sigma) {
    const T x = log_ratio / sigma;
    return std::exp(log_ratio) / (1 + x * x);
  }
  // rho w has a local peak at log rho = 1 - sqrt(1 - s^2) when s < 1; far beyond it (rho > e) it grows again.
  static double log_bound(double sigma) {
    if (sigma >= 1) return Gaussian::log_bound(sigma);
    const double peak = sigma * sigma / (1 + std::sqrt(1 - sigma * sigma));
    return peak - std::log1p(peak * peak / (sigma * sigma));
  }
};

template <class Weight, PullBack pull_back>
struct Gipo {
  double sigma_pos, sigma_neg, log_bound;

  template <class T>
  Term<T> operator()(T log_ratio, T advantage) const {
    T m;
    if (pull_back != PullBack::kDamped && advantage > 0 && log_ratio < 0) {
      m = std::exp(log_ratio);
    } else if (pull_back == PullBack::kBoth && advantage < 0 && log_ratio > 0) {
      m = std::exp(std::min(log_ratio, static_cast<T>(log_bound)));
    } else {
      m = Weight::multiplier(log_ratio, static_cast<T>(advantage < 0 ? sigma_neg : sigma_pos));
    }
    return {m, -m * advantage};
  }
};

template <class Weight>
Kernels gipo_kernels(const SurrogateOptions& o) {
  const double pos = o.sigma_pos.value_or(o.sigma), neg = o.sigma_neg.value_or(o.sigma);
  const double bound = Weight::log_bound(neg);  // the cap acts on negative advantages only
  switch (o.pull_back) {
    case PullBack::kDamped:
      return kernels(Gipo<Weight, PullBack::kDamped>{pos, neg, bound});
    case PullBack::kPositive:
      return kernels(Gipo<Weight, PullBack::kPositive>{pos, neg, bound});
    case PullBack::kBoth:
      return kernels(Gipo<Weight, PullBack::kBoth>{pos, neg, bound});
  }
  GIPO_CHECK(false);
}

// PPO's clipped objective, with the floor dual_clip * A under it for A < 0 (infinite: plain PPO).
struct ClippedRatio {
  double epsilon, dual_clip;

  template <class T>
  Term<T> operator()(T log_ratio, T advantage) const {
    const T rho = std::exp(log_ratio);
    const T low = static_cast<T>(1 - epsilon), high = static_cast<T>(1 + epsilon), cut = static_cast<T>(dual_clip);
    if (advantage < 0) {
      const T kept = std::min(std::max(rho, low), cut);
      return {rho < low || rho > cut ? T(0) : rho, -kept * advantage};
    }
    return {advantage > 0 && rho > high ? T(0) : rho, -std::min(rho, high) * advantage};
  }
};

struct Entry {
  std::string_view name, summary;
  std::array<std::string_view, 5> options;  // the keys it reads; the rest empty
  bool clips_to_zero;
  Kernels (*make)(const SurrogateOptions&);
};

// Every surrogate, once. A new one is one more entry.
constexpr Entry kEntries[] = {
    {"gipo",
     "The ratio times a smooth trust weight in log-ratio space; the weight is not differentiated.",
     {"sigma", "sigma_pos", "sigma_neg", "kernel", "pull_back"},
     false,
     [](const SurrogateOptions& o) {
       switch (o.kernel) {
         case TrustKernel::kGaussian:
           return gipo_kernels<Gaussian>(o);
         case TrustKernel::kLaplacian:
           return gipo_kernels<Laplacian>(o);
         case TrustKernel::kCauchy:
           return gipo_kernels<Cauchy>(o);
       }
       GIPO_CHECK(false);
     }},
    {"ppo",
     "Clipped ratio: no gradient once a sample has moved past 1 +- epsilon.",
     {"epsilon"},
     true,
     [](const SurrogateOptions& o) {
       return kernels(ClippedRatio{o.epsilon, HUGE_VAL});
     }},
    {"dual_clip",
     "ppo that also cuts negative advantages beyond a large ratio.",
     {"epsilon", "dual_clip"},
     true,
     [](const SurrogateOptions& o) {
       return kernels(ClippedRatio{o.epsilon, o.dual_clip});
     }},
    {"sapo",
     "A sigmoid gate on the ratio, with a temperature for each sign of the advantage.",
     {"tau_pos", "tau_neg"},
     false,
     [](const SurrogateOptions& o) {
       return kernels([pos = o.tau_pos, neg = o.tau_neg]<class T>(T log_ratio, T advantage) -> Term<T> {
         const T rho = std::exp(log_ratio), tau = static_cast<T>(advantage < 0 ? neg : pos), x = tau * (rho - 1);
         // s = sigmoid(x) by e = exp(-|x|), so that neither s nor 1 - s cancels.
         const T e = std::exp(-std::abs(x)), s = (x < 0 ? e : T(1)) / (1 + e);
         return {rho * 4 * e / ((1 + e) * (1 + e)), -(4 / tau) * s * advantage};
       });
     }},
    {"no_clip",
     "The plain importance ratio.",
     {},
     false,
     [](const SurrogateOptions&) {
       return kernels([]<class T>(T log_ratio, T advantage) -> Term<T> {
         const T rho = std::exp(log_ratio);
         return {rho, -rho * advantage};
       });
     }},
    {"cispo",
     "The ratio clipped to 1 +- epsilon as a weight on log pi: no sample loses its gradient.",
     {"epsilon"},
     false,
     [](const SurrogateOptions& o) {
       return kernels([epsilon = o.epsilon]<class T>(T log_ratio, T advantage) -> Term<T> {
         const T weight = std::clamp(std::exp(log_ratio), static_cast<T>(1 - epsilon), static_cast<T>(1 + epsilon));
         return {weight, -weight * advantage};
       });
     }},
    {"truncated",
     "The ratio cut at rho_max as a weight on log pi, as in V-trace.",
     {"rho_max"},
     false,
     [](const SurrogateOptions& o) {
       return kernels([rho_max = o.rho_max]<class T>(T log_ratio, T advantage) -> Term<T> {
         const T weight = std::min(std::exp(log_ratio), static_cast<T>(rho_max));
         return {weight, -weight * advantage};
       });
     }},
    {"ce_gppo",
     "ppo that keeps a bounded gradient where ppo has none: beta times the edge of the clip.",
     {"epsilon", "beta_low", "beta_high"},
     false,
     [](const SurrogateOptions& o) {
       return kernels([o]<class T>(T log_ratio, T advantage) -> Term<T> {
         const T rho = std::exp(log_ratio), low = static_cast<T>(1 - o.epsilon), high = static_cast<T>(1 + o.epsilon);
         T m = rho;
         if (advantage > 0 && rho > high) m = static_cast<T>(o.beta_high) * high;
         if (advantage < 0 && rho < low) m = static_cast<T>(o.beta_low) * low;
         return {m, -m * advantage};
       });
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
