// What the large model's own kernels compute, for one element or one ratio. Compiles for host and device.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "gipo/core/device.h"
#include "gipo/kernels/adamw_terms.h"
#include "gipo/objective/surrogate_choice.h"

namespace gipo {

// What a ratio of a chunk is taken of: each token, each action (a token for each dimension), the whole chunk.
enum class ChunkRatio { kToken, kAction, kChunk };

// How the logits of a chunk become a loss. n: chunks, of `tokens` each; a ratio is over `each` tokens.
struct HeadOptions {
  std::int64_t n = 0, tokens = 56, each = 1;
  float temperature = 1, entropy_coef = 0;
  float weight = 0;  // of one chunk in the loss: 1 / chunks of the whole update
  SurrogateChoice surrogate;
  float kept = 0;  // m2po: the largest |log ratio| that counts
  bool centred = false;
  float importance_max = 1;
};
inline constexpr int kHeadChoices = 256;

// Arrays of host or device. centre and age may be null.
struct HeadArrays {
  const float* logits;              // [n, tokens, 256], before the temperature
  const std::int32_t* action;       // [n, tokens] in 0 to 255
  const float *behaviour, *centre;  // [n, tokens] log-probs of the policy that acted, and of the trust region's centre
  const float *advantage, *age;     // [n]
  float *log_prob, *entropy;        // [n, tokens]
  float *log_ratio, *multiplier, *loss;  // [n, ratios of a chunk]; the multiplier with its importance weight
  float* d_logits;                       // [n, tokens, 256]; null: none wanted
};

struct RatioTerm {
  float log_ratio, multiplier, loss;
};

// One ratio from the sums over its tokens: log pi - log mu, and log centre - log mu.
GIPO_HD inline RatioTerm ratio_term(const HeadOptions& o, float to_policy, float to_centre, float advantage,
                                    float age) {
  RatioTerm r{to_policy, 0, 0};
  const float about = o.centred ? to_policy - to_centre : to_policy;
  const auto take = [&](const auto& functor) {
    const SurrogateTerm<float> term = surrogate_term(functor, about, advantage);
    const float importance = o.centred ? importance_weight(to_centre, o.importance_max) : 1.0F;
    r.multiplier = term.multiplier * importance;
    r.loss = term.loss * importance;
  };
  visit_surrogate(o.surrogate, [&](const auto& functor) {
    using Functor = std::decay_t<decltype(functor)>;
    if constexpr (std::is_same_v<Functor, SecondMoment>) {
      take(SecondMomentTerm{o.kept});
    } else if constexpr (requires { functor.at(0.0); }) {
      take(functor.at(age));
    } else {
      take(functor);
    }
  });
  return r;
}

// d loss / d logit of one choice with log-prob log_p, where `by_log_prob` is d loss / d log pi(action).
GIPO_HD inline float d_logit(const HeadOptions& o, float log_p, bool chosen, float by_log_prob, float entropy) {
  const float p = std::exp(log_p);
  const float by_entropy = o.entropy_coef * o.weight * p * (log_p + entropy);
  return (by_log_prob * ((chosen ? 1.0F : 0.0F) - p) + by_entropy) / o.temperature;
}

// A float as the nearest bf16, ties away from zero, and how far its bits lie from that: nothing is lost.
struct SplitFloat {
  std::uint16_t high;
  std::int16_t low;
};
GIPO_HD inline SplitFloat split(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t high = (bits + 0x8000U) >> 16;
  return {static_cast<std::uint16_t>(high), static_cast<std::int16_t>(bits - (high << 16))};
}
GIPO_HD inline float join(SplitFloat s) {
  return std::bit_cast<float>((static_cast<std::uint32_t>(s.high) << 16) +
                              static_cast<std::uint32_t>(static_cast<std::int32_t>(s.low)));
}
GIPO_HD inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// What rows are divided by before they are rounded to 8-bit floats (e4m3), whose largest is 448. most: the row's largest size.
GIPO_HD inline float fp8_scale(float most) { return most > 0 ? most / 448.0F : 1.0F; }

// SiLU(gate) up, and its derivatives.
GIPO_HD inline float silu_product(float gate, float up) { return gate / (1 + std::exp(-gate)) * up; }
struct GateGradient {
  float gate, up, product;
};
GIPO_HD inline GateGradient silu_gradient(float gate, float up, float by_product) {
  const float s = 1 / (1 + std::exp(-gate)), silu = gate * s;
  return {by_product * up * s * (1 + gate * (1 - s)), by_product * silu, silu * up};
}

}  // namespace gipo
