#include "gipo/objective/surrogate.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>
#include <type_traits>

#include "gipo/config/did_you_mean.h"
#include "gipo/core/error.h"

namespace gipo {
namespace {

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

// GIPO's widths, and how they grow with the age of a sample.
SurrogateChoice gipo_choice(const SurrogateOptions& o) {
  const double pos = o.sigma_pos.value_or(o.sigma), neg = o.sigma_neg.value_or(o.sigma);
  const bool aged = o.sigma_growth > 0;
  return {aged ? SurrogateKind::kAgedGipo : SurrogateKind::kGipo,
          o.kernel,
          o.pull_back,
          pos,
          neg,
          o.sigma_gap,
          o.sigma_growth};
}

SurrogateChoice numbers(SurrogateKind kind, double first = 0, double second = 0, double third = 0) {
  return {kind, TrustKernel::kGaussian, PullBack::kDamped, first, second, third, 0};
}

struct Entry {
  std::string_view name, summary;
  std::array<std::string_view, 7> options;  // the keys it reads; the rest empty
  bool clips_to_zero;
  SurrogateChoice (*make)(const SurrogateOptions&);
};

// Every surrogate, once. A new one is one more functor in surrogate_terms.h and one more entry.
constexpr Entry kEntries[] = {
    {"gipo",
     "The ratio times a smooth trust weight in log-ratio space; the weight is not differentiated.",
     {"sigma", "sigma_pos", "sigma_neg", "kernel", "pull_back", "sigma_growth", "sigma_gap"},
     false,
     gipo_choice},
    {"ppo",
     "Clipped ratio: no gradient once a sample has moved past 1 +- epsilon.",
     {"epsilon"},
     true,
     [](const SurrogateOptions& o) { return numbers(SurrogateKind::kClippedRatio, o.epsilon, HUGE_VAL); }},
    {"dual_clip",
     "ppo that also cuts negative advantages beyond a large ratio.",
     {"epsilon", "dual_clip"},
     true,
     [](const SurrogateOptions& o) { return numbers(SurrogateKind::kClippedRatio, o.epsilon, o.dual_clip); }},
    {"sapo",
     "A sigmoid gate on the ratio, with a temperature for each sign of the advantage.",
     {"tau_pos", "tau_neg"},
     false,
     [](const SurrogateOptions& o) { return numbers(SurrogateKind::kSapo, o.tau_pos, o.tau_neg); }},
    {"no_clip",
     "The plain importance ratio.",
     {},
     false,
     [](const SurrogateOptions&) { return numbers(SurrogateKind::kNoClip); }},
    {"cispo",
     "The ratio clipped to 1 +- epsilon as a weight on log pi: no sample loses its gradient.",
     {"epsilon"},
     false,
     [](const SurrogateOptions& o) { return numbers(SurrogateKind::kCispo, o.epsilon); }},
    {"truncated",
     "The ratio cut at rho_max as a weight on log pi, as in V-trace.",
     {"rho_max"},
     false,
     [](const SurrogateOptions& o) { return numbers(SurrogateKind::kTruncated, o.rho_max); }},
    {"ce_gppo",
     "ppo that keeps a bounded gradient where ppo has none: beta times the edge of the clip.",
     {"epsilon", "beta_low", "beta_high"},
     false,
     [](const SurrogateOptions& o) { return numbers(SurrogateKind::kCeGppo, o.epsilon, o.beta_low, o.beta_high); }},
    {"m2po",
     "The plain ratio of the samples that are left when those with the largest log ratios are taken out of the batch.",
     {"moment_max"},
     true,
     [](const SurrogateOptions& o) { return numbers(SurrogateKind::kM2po, o.moment_max); }},
    {"topr",
     "Weight 1 where the advantage is positive; the ratio cut at 1 where it is negative.",
     {},
     false,
     [](const SurrogateOptions&) { return numbers(SurrogateKind::kTopr); }},
};

}  // namespace

Surrogate::Surrogate(const SurrogateOptions& options) {
  for (const Entry& entry : kEntries) {
    if (entry.name != options.name) continue;
    choice_ = entry.make(options);
    visit_surrogate(choice_, [this](const auto& functor) {
      float_kernel_ = over_arrays<float>(functor);
      double_kernel_ = over_arrays<double>(functor);
    });
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

template <class T>
T largest_kept(std::span<const T> log_ratio, double most) {
  return largest_bound<T>([&](T bound) {
    double squares = 0, count = 0;
    for (const T x : log_ratio) {
      const T size = std::abs(clamped_log_ratio(x));
      if (!(size <= bound)) continue;
      squares += static_cast<double>(size) * static_cast<double>(size);
      count += 1;
    }
    return squares <= most * count;
  });
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
