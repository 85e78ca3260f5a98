// The learner's gradients against central differences of a loss written here a second time, in the plainest way, for
// every surrogate, kind of ratio, distribution and layer. What a surrogate does not differentiate is frozen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gipo/core/thread_pool.h"
#include "gipo/learner/cpu_learner.h"
#include "gipo/policy/mlp_policy.h"

namespace gipo {
namespace {

constexpr double kEntropyCoef = 0.03, kKlCoef = 0.07, kProximalCoef = 0.4, kValueCoef = 0.5;

double frozen_gipo_weight(const SurrogateOptions& o, double lr, double a) {
  const double sigma = a < 0 ? o.sigma_neg.value_or(o.sigma) : o.sigma_pos.value_or(o.sigma);
  if (o.pull_back != PullBack::kDamped && a > 0 && lr < 0) return 1;
  if (o.pull_back == PullBack::kBoth && a < 0 && lr > 0) {
    // The gaussian's cap; the other kernels are tested here where theirs is 1 (laplacian) or not reached.
    const double cap = o.kernel == TrustKernel::kGaussian ? std::exp(sigma * sigma / 2) : 1.0;
    if (o.kernel != TrustKernel::kCauchy) return std::min(std::exp(lr), cap) / std::exp(lr);
  }
  if (o.kernel == TrustKernel::kGaussian) return std::exp(-lr * lr / (2 * sigma * sigma));
  if (o.kernel == TrustKernel::kLaplacian) return std::exp(-std::abs(lr) / sigma);
  return 1 / (1 + (lr / sigma) * (lr / sigma));
}

// Its width has grown with the age of the sample.
SurrogateOptions aged(SurrogateOptions o, double age) {
  const double wider = std::pow(1 + age / o.sigma_gap, o.sigma_growth);
  o.sigma_pos = wider * o.sigma_pos.value_or(o.sigma);
  o.sigma_neg = wider * o.sigma_neg.value_or(o.sigma);
  return o;
}

// The objective of one sample as a function of its log ratio; frozen quantities are taken at lr0.
double objective(const SurrogateOptions& o, double lr, double lr0, double a) {
  const double rho = std::exp(lr), rho0 = std::exp(lr0), e = o.epsilon;
  const double clipped = std::min(rho * a, std::clamp(rho, 1 - e, 1 + e) * a);
  if (o.name == "gipo") return frozen_gipo_weight(o, lr0, a) * rho * a;
  if (o.name == "ppo") return clipped;
  if (o.name == "dual_clip") return a < 0 ? std::max(clipped, o.dual_clip * a) : clipped;
  if (o.name == "sapo") {
    const double tau = a < 0 ? o.tau_neg : o.tau_pos;
    return 4 / tau / (1 + std::exp(-tau * (rho - 1))) * a;
  }
  if (o.name == "no_clip") return rho * a;
  if (o.name == "cispo") return std::clamp(rho0, 1 - e, 1 + e) * lr * a;
  if (o.name == "topr") return (a < 0 ? std::min(rho0, 1.0) : 1) * lr * a;
  if (o.name == "m2po") return std::abs(lr0) <= o.moment_max ? rho * a : 0;  // moment_max: what the batch made of it
  if (o.name == "truncated") return std::min(rho0, o.rho_max) * lr * a;
  if (o.name == "ce_gppo") {
    if (a > 0 && rho0 > 1 + e) return o.beta_high * (1 + e) * rho / rho0 * a;
    if (a < 0 && rho0 < 1 - e) return o.beta_low * (1 - e) * rho / rho0 * a;
    return rho * a;
  }
  ADD_FAILURE() << "no reference objective for surrogate " << o.name << ": write one here";
  return 0;
}

struct Case {
  SurrogateOptions surrogate;
  ModelSpec model;
  std::string label;
};

class Fixture {
 public:
  explicit Fixture(const Case& c)
      : case_(c), pool_(1), learner_(setup(c), RandomStream(3), pool_), batch_(kSize, transition()) {
    fill_batch();
    // A few updates part the policy from its moving average.
    for (int i = 0; i < 5; ++i) learner_.update(batch_, {});
    // Biases begin at zero, where a ReLU that sees only zeros has no derivative: move off it.
    RandomStream random(14);
    for (double& p : learner_.policy_parameters()) p += 0.1 * random.normal();
    for (double& p : learner_.critic_parameters()) p += 0.1 * random.normal();
    spread_ratios();
    learner_.compute_gradients(batch_);
    base_ = log_ratios();
    base_trust_ = trust_;
    if (c.surrogate.name == "m2po") {
      case_.surrogate.moment_max = largest_kept<double>(centred() ? base_trust_ : base_, c.surrogate.moment_max);
    }
  }

  double policy_error() {
    return error(learner_.policy_parameters(), learner_.policy_gradient(), [&] { return policy_loss(); });
  }
  double critic_error() {
    return error(learner_.critic_parameters(), learner_.critic_gradient(), [&] { return value_loss(); });
  }

 private:
  static constexpr std::size_t kSize = 24, kObservations = 3;
  const std::uint8_t* mask() const { return mask_.empty() ? nullptr : mask_.data(); }
  TransitionSpec transition() const { return {case_.model.fields, dims()}; }
  std::size_t dims() const { return case_.model.distribution.dims(); }
  bool centred() const { return case_.surrogate.centre == Centre::kProximal; }

  static LearnerSetup setup(const Case& c) {
    LearnerSetup s;
    s.model = c.model;
    s.surrogate = c.surrogate;
    s.advantage.mode = AdvantageMode::kStored;
    s.advantage.normalise = false;
    s.learner.batch_size = kSize;
    s.learner.policy_lr = 0.01;
    s.learner.entropy_coef = kEntropyCoef;
    s.learner.kl_coef = kKlCoef;
    s.learner.proximal_coef = kProximalCoef;
    s.learner.value_coef = kValueCoef;
    return s;
  }

  void fill_batch() {
    RandomStream random(7);
    const auto& spec = case_.model.distribution;
    for (float& v : batch_.observation()) v = static_cast<float>(random.normal());
    for (std::size_t i = 0; i < kSize; ++i) {
      batch_.version()[i] = -10 * static_cast<std::int64_t>(i);
      batch_.advantage()[i] = static_cast<float>(random.normal());
      batch_.target()[i] = static_cast<float>(random.normal());
      for (std::size_t d = 0; d < dims(); ++d) {
        const auto n = static_cast<std::uint64_t>(spec.choices[d]);
        batch_.action()[i * dims() + d] =
            static_cast<float>(n > 0 ? static_cast<double>(random.below(n)) : random.normal());
        for (std::uint64_t k = 0; spec.masked && k < n; ++k) {
          mask_.push_back(random.uniform() < 0.5 || static_cast<float>(k) == batch_.action()[i * dims() + d]);
        }
      }
    }
    if (!mask_.empty()) std::ranges::copy(mask_, batch_.observation<std::uint8_t>(1).begin());
  }

  // Behaviour log-probs such that the log ratios are spread around zero.
  void spread_ratios() {
    RandomStream random(11);
    const std::vector<double> now = log_probs();
    for (std::size_t i = 0; i < now.size(); ++i) {
      batch_.log_prob()[i] = static_cast<float>(now[i] - 0.5 * random.normal());
    }
  }

  std::vector<double> observations() const {
    return std::vector<double>(batch_.observation().begin(), batch_.observation().begin() + kSize * kObservations);
  }

  std::vector<double> log_probs() {
    evaluate();
    return log_prob_;
  }

  void evaluate() {
    const auto& spec = case_.model.distribution;
    const std::vector<double> x = observations(), action(batch_.action().begin(), batch_.action().end());
    const MlpShape shape = mlp_shapes(case_.model).policy;
    Mlp<double> net(shape, kSize), average_net(shape, kSize);
    const std::size_t n = net.parameter_count();
    const std::span<const double> now = learner_.policy_parameters(), average = learner_.average_policy();
    const DistributionView<double> pi{net.forward(now.first(n), x.data(), kSize), now.subspan(n)};
    const DistributionView<double> ema{average_net.forward(average.first(n), x.data(), kSize), average.subspan(n)};
    log_prob_.resize(kSize * dims());
    entropy_.resize(kSize);
    proximal_.resize(kSize);
    EvaluatedDistribution<double> now_pi(spec, kSize), average_pi(spec, kSize);
    now_pi.evaluate(pi, kSize, mask());
    average_pi.evaluate(ema, kSize, mask());
    now_pi.log_prob(action.data(), log_prob_.data());
    average_log_prob_.resize(kSize * dims());
    average_pi.log_prob(action.data(), average_log_prob_.data());
    now_pi.entropy(entropy_.data());
    now_pi.kl_divergence(average_pi, proximal_.data());
  }

  // One per ratio. trust_ and importance_ likewise, about the average.
  std::vector<double> log_ratios() {
    evaluate();
    const std::size_t count = ratios_per_action(case_.surrogate, dims()), parts = dims() / count;
    std::vector<double> ratios(kSize * count, 0.0);
    trust_.assign(ratios.size(), 0.0);
    for (std::size_t i = 0; i < kSize * dims(); ++i) {
      ratios[i / parts] += log_prob_[i] - static_cast<double>(batch_.log_prob()[i]);
      trust_[i / parts] += log_prob_[i] - average_log_prob_[i];
    }
    importance_.resize(ratios.size());
    for (std::size_t i = 0; i < ratios.size(); ++i) {
      importance_[i] = std::min(std::exp(ratios[i] - trust_[i]), case_.surrogate.importance_max);
    }
    return ratios;
  }

  double policy_loss() {
    const std::vector<double> ratios = log_ratios();
    const std::size_t per_sample = ratios.size() / kSize;
    double loss = 0;
    for (std::size_t i = 0; i < ratios.size(); ++i) {
      const std::size_t sample = i / per_sample;
      const double a = static_cast<double>(batch_.advantage()[sample]);
      const SurrogateOptions o =
          aged(case_.surrogate, static_cast<double>(learner_.version() - batch_.version()[sample]));
      loss -= centred() ? importance_[i] * objective(o, trust_[i], base_trust_[i], a)
                        : objective(o, ratios[i], base_[i], a);
      loss -= kKlCoef * ratios[i];
    }
    for (std::size_t i = 0; i < kSize; ++i) loss += kProximalCoef * proximal_[i] - kEntropyCoef * entropy_[i];
    return loss / kSize;
  }

  double value_loss() {
    const std::vector<double> x = observations();
    const MlpShapes shapes = mlp_shapes(case_.model);
    Mlp<double> policy(shapes.policy, kSize), net(shapes.critic, kSize);
    const double* seen = policy.forward_layers(
        0, shapes.shared, learner_.policy_parameters().first(policy.parameter_count()), x.data(), kSize);
    const double* values = net.forward(learner_.critic_parameters(), seen, kSize);
    double loss = 0;
    for (std::size_t i = 0; i < kSize; ++i) loss += std::pow(values[i] - static_cast<double>(batch_.target()[i]), 2);
    return kValueCoef * loss / kSize;
  }

  template <class Loss>
  double error(std::span<double> parameters, std::span<const double> gradient, Loss&& loss) {
    const double h = 1e-6;
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const double held = parameters[i];
      parameters[i] = held + h;
      const double up = loss();
      parameters[i] = held - h;
      const double down = loss();
      parameters[i] = held;
      const double numeric = (up - down) / (2 * h);
      difference += (numeric - gradient[i]) * (numeric - gradient[i]);
      size += gradient[i] * gradient[i];
    }
    return std::sqrt(difference / size);
  }

  Case case_;
  ThreadPool pool_;
  CpuLearner<double> learner_;
  Batch batch_;
  std::vector<std::uint8_t> mask_;  // [kSize, mask_size()] where the distribution is masked
  std::vector<double> base_, base_trust_, log_prob_, average_log_prob_, entropy_, proximal_, trust_, importance_;
};

std::vector<SurrogateOptions> surrogates() {
  std::vector<SurrogateOptions> all;
  for (const SurrogateInfo& info : registered_surrogates()) {
    SurrogateOptions o;
    o.name = info.name;
    o.sigma = 0.6;
    o.moment_max = 0.1;  // leaves some out
    if (o.name != "gipo") {
      all.push_back(o);
      continue;
    }
    for (const auto& [kernel, kernel_word] : kWords<TrustKernel>) {
      for (const auto& [pull_back, word] : kWords<PullBack>) {
        // The cauchy's cap in "both" has no plain form; its value is tested beside the surrogate.
        if (kernel == TrustKernel::kCauchy && pull_back == PullBack::kBoth) continue;
        o.kernel = kernel;
        o.pull_back = pull_back;
        o.sigma_neg = 0.3;
        o.sigma_growth = 0;
        all.push_back(o);
        if (kernel != TrustKernel::kGaussian) continue;
        o.sigma_growth = 0.5;
        all.push_back(o);
      }
    }
  }
  return all;
}

std::vector<ModelSpec> models() {
  std::vector<ModelSpec> all;
  const DistributionSpec categorical{{3}}, multi{{3, 4}}, gaussian{{0, 0}}, composed{{3, 0, 4}},
      masked{{3, 0, 4}, true};
  for (const DistributionSpec& d : {categorical, multi, gaussian, composed, masked}) {
    for (const Activation activation : {Activation::kTanh, Activation::kRelu}) {
      for (const bool layer_norm : {false, true}) {
        if (d.kind() == DistributionKind::kMixed && (activation == Activation::kRelu || layer_norm)) continue;
        ModelSpec m;
        m.observation_size = 3;
        m.fields = plain_fields(3);
        m.distribution = d;
        if (d.masked) add_mask(m);
        m.options.hidden = {8, 7};
        m.options.activation = activation;
        m.options.layer_norm = layer_norm;
        all.push_back(m);
        if (activation == Activation::kTanh) continue;
        // The policy's loss holds no value error: the critic's gradient must not enter shared layers.
        m.options.shared = 1;
        m.options.critic_hidden = Widths{6};
        all.push_back(m);
      }
    }
  }
  return all;
}

TEST(Gradient, MatchesFiniteDifferencesForEverySurrogateRatioDistributionAndLayer) {
  double worst = 0;
  int cases = 0;
  for (SurrogateOptions surrogate : surrogates()) {
    for (const auto& [ratio, word] : kWords<RatioOf>) {
      surrogate.ratio = ratio;
      for (const ModelSpec& model : models()) {
        // Where the ratio is taken about makes no difference to the layers: every second case, so that both meet all.
        surrogate.centre = cases % 2 == 0 ? Centre::kBehaviour : Centre::kProximal;
        const std::string label =
            surrogate.name + " " + word_of(surrogate.kernel) + " " + word_of(surrogate.pull_back) + " " +
            word_of(surrogate.centre) + " growth " + std::to_string(surrogate.sigma_growth) + " " + word + " outputs " +
            std::to_string(model.distribution.outputs()) + " relu " +
            std::to_string(model.options.activation == Activation::kRelu) + " norm " +
            std::to_string(model.options.layer_norm) + " shared " + std::to_string(model.options.shared);
        Fixture f({surrogate, model, label});
        const double policy = f.policy_error(), critic = f.critic_error();
        EXPECT_LT(policy, 1e-5) << label;
        EXPECT_LT(critic, 1e-5) << label;
        worst = std::max({worst, policy, critic});
        ++cases;
      }
    }
  }
  RecordProperty("worst_relative_error", std::to_string(worst));
  std::printf("worst relative error %.2e over %d cases\n", worst, cases);
}

}  // namespace
}  // namespace gipo
