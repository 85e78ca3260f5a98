#include "gipo/vla/torch/vla_kernels.h"

#include <algorithm>
#include <array>
#include <vector>

namespace gipo {
namespace {

struct Bf16 {
  std::uint16_t bits;
};
float load(const float& v) { return v; }
float load(const Bf16& v) { return from_bf16(v.bits); }
void store(float& to, float v) { to = v; }
void store(Bf16& to, float v) {  // to the nearest, ties to even, as libtorch rounds
  const auto bits = std::bit_cast<std::uint32_t>(v);
  to.bits = std::isnan(v) ? 0x7fc0 : static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

// f with a null pointer of the arrays' type.
template <class F>
void with_type(Value type, F&& f) {
  type == Value::kFloat ? f(static_cast<float*>(nullptr)) : f(static_cast<Bf16*>(nullptr));
}

template <class T>
float inverse_rms(const T* x, std::int64_t width, float epsilon) {
  double squares = 0;
  for (std::int64_t i = 0; i < width; ++i) squares += static_cast<double>(load(x[i])) * static_cast<double>(load(x[i]));
  return static_cast<float>(1 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(epsilon)));
}

template <class T>
void add_norm(const AddNorm& a) {
  const auto *x = static_cast<const T*>(a.x), *y = static_cast<const T*>(a.y),
             *weight = static_cast<const T*>(a.weight);
  auto *sum = static_cast<T*>(a.sum), *normed = static_cast<T*>(a.normed);
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const std::int64_t at = row * a.width;
    for (std::int64_t i = at; i < at + a.width; ++i) store(sum[i], load(x[i]) + (y != nullptr ? load(y[i]) : 0));
    const float r = inverse_rms(sum + at, a.width, a.epsilon);
    for (std::int64_t i = 0; i < a.width; ++i) store(normed[at + i], load(sum[at + i]) * r * load(weight[i]));
  }
}

template <class T>
void norm_gradient(const NormGradient& a) {
  const auto *x = static_cast<const T*>(a.x), *weight = static_cast<const T*>(a.weight);
  const auto *by_normed = static_cast<const T*>(a.by_normed), *by_sum = static_cast<const T*>(a.by_sum);
  auto *by_x = static_cast<T*>(a.by_x), *normed = static_cast<T*>(a.normed);
  std::fill_n(a.parts, a.blocks * a.width, 0.0F);
  const std::int64_t rows_of_block = (a.rows + a.blocks - 1) / a.blocks;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const std::int64_t at = row * a.width;
    float* const part = a.parts + row / rows_of_block * a.width;
    const float r = inverse_rms(x + at, a.width, a.epsilon);
    double along = 0;
    for (std::int64_t i = 0; i < a.width; ++i) {
      along += static_cast<double>(load(by_normed[at + i]) * load(weight[i])) * static_cast<double>(load(x[at + i]));
    }
    const float back = static_cast<float>(along / static_cast<double>(a.width)) * r * r * r;
    for (std::int64_t i = 0; i < a.width; ++i) {
      const float value = load(x[at + i]), by = load(by_normed[at + i]), w = load(weight[i]);
      part[i] += by * value * r;
      store(normed[at + i], value * r * w);
      store(by_x[at + i], (by_sum != nullptr ? load(by_sum[at + i]) : 0) + by * w * r - value * back);
    }
  }
}

template <class T>
void rotate(const Rotation& a) {
  const std::int64_t size = 2 * a.half;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const float* const angle = a.turned > 0 ? a.table + static_cast<std::int64_t>(a.position[row]) * size : nullptr;
    for (std::int64_t head = 0; head < (a.from[0].data != nullptr ? a.parts : a.turned) * a.heads; ++head) {
      T* const x = static_cast<T*>(a.x) + (row * a.parts * a.heads + head) * size;
      const T* from = x;
      if (const Rotation::Part& part = a.from[head / a.heads]; part.data != nullptr) {
        from = static_cast<const T*>(part.data) + row / a.each * part.sequence + row % a.each * part.row +
               head % a.heads * part.head;
      }
      for (std::int64_t i = 0; i < a.half; ++i) {
        const bool turned = head < a.turned * a.heads;
        const float c = turned ? angle[2 * i] : 1, s = turned ? (a.inverse ? -1 : 1) * angle[2 * i + 1] : 0;
        const float one = load(from[i]), two = load(from[i + a.half]);
        store(x[i], one * c - two * s);
        store(x[i + a.half], two * c + one * s);
      }
    }
  }
}

template <class T>
void gate_product(const GateProduct& a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    for (std::int64_t i = 0; i < a.hidden; ++i) {
      const std::int64_t at = row * a.hidden + i, gate_at = 2 * row * a.hidden + i, up_at = gate_at + a.hidden;
      const float gate = load(static_cast<const T*>(a.gate_up)[gate_at]),
                  up = load(static_cast<const T*>(a.gate_up)[up_at]);
      if (a.by_product == nullptr) {
        store(static_cast<T*>(a.product)[at], silu_product(gate, up));
        continue;
      }
      const GateGradient g = silu_gradient(gate, up, load(static_cast<const T*>(a.by_product)[at]));
      store(static_cast<T*>(a.product)[at], g.product);
      store(static_cast<T*>(a.by_gate_up)[gate_at], g.gate);
      store(static_cast<T*>(a.by_gate_up)[up_at], g.up);
    }
  }
}

// The nearest 8-bit float: 4 bits of exponent, 3 of mantissa, ties to even.
std::uint8_t to_e4m3(float v) {
  if (std::isnan(v)) return 0x7f;
  const float size = std::min(std::abs(v), 448.0F);
  const int exponent = size > 0 ? std::max(std::ilogb(size), -6) : -6;
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, 3 - exponent)));
  return static_cast<std::uint8_t>((std::signbit(v) ? 0x80 : 0) + (exponent + 6) * 8 + steps);
}

template <class T>
void fp8_rows(const Fp8Rows& a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const T* const x = static_cast<const T*>(a.x) + row * a.width;
    float most = 0;
    for (std::int64_t i = 0; i < a.width; ++i) most = std::max(most, std::abs(load(x[i])));
    a.scale[row] = fp8_scale(most);
    const float inverse = 1 / a.scale[row];
    for (std::int64_t i = 0; i < a.width; ++i) a.to[row * a.width + i] = to_e4m3(load(x[i]) * inverse);
  }
}

}  // namespace

void host_add_norm(const AddNorm& a) {
  with_type(a.type, [&]<class T>(T*) { add_norm<T>(a); });
}
void host_norm_gradient(const NormGradient& a) {
  with_type(a.type, [&]<class T>(T*) { norm_gradient<T>(a); });
}
void host_rotate(const Rotation& a) {
  with_type(a.type, [&]<class T>(T*) { rotate<T>(a); });
}
void host_gate_product(const GateProduct& a) {
  with_type(a.type, [&]<class T>(T*) { gate_product<T>(a); });
}
void host_fp8_rows(const Fp8Rows& a) {
  with_type(a.type, [&]<class T>(T*) { fp8_rows<T>(a); });
}

void host_head(const HeadOptions& o, const HeadArrays& a) {
  std::vector<float> norm(static_cast<std::size_t>(o.tokens));
  for (std::int64_t n = 0; n < o.n; ++n) {
    for (std::int64_t t = 0; t < o.tokens; ++t) {
      const std::int64_t at = n * o.tokens + t;
      const float* const logits = a.logits + at * kHeadChoices;
      const float top = *std::max_element(logits, logits + kHeadChoices) / o.temperature;
      double sum = 0, weighted = 0;
      for (int k = 0; k < kHeadChoices; ++k) {
        const double z = static_cast<double>(logits[k] / o.temperature - top), e = std::exp(z);
        sum += e;
        weighted += e * z;
      }
      const double log_sum = std::log(sum);
      norm[static_cast<std::size_t>(t)] = top + static_cast<float>(log_sum);
      a.entropy[at] = static_cast<float>(log_sum - weighted / sum);
      a.log_prob[at] = logits[a.action[at]] / o.temperature - norm[static_cast<std::size_t>(t)];
    }
    const std::int64_t ratios = o.tokens / o.each;
    for (std::int64_t j = 0; j < ratios; ++j) {
      float to_policy = 0, to_centre = 0;
      for (std::int64_t t = n * o.tokens + j * o.each, end = t + o.each; t < end; ++t) {
        to_policy += a.log_prob[t] - a.behaviour[t];
        if (o.centred) to_centre += a.centre[t] - a.behaviour[t];
      }
      const RatioTerm r = ratio_term(o, to_policy, to_centre, a.advantage[n], a.age != nullptr ? a.age[n] : 0.0F);
      const std::int64_t at = n * ratios + j;
      a.log_ratio[at] = r.log_ratio, a.multiplier[at] = r.multiplier, a.loss[at] = r.loss;
    }
    for (std::int64_t t = 0; a.d_logits != nullptr && t < o.tokens; ++t) {
      const std::int64_t at = n * o.tokens + t;
      const float by_log_prob = -a.multiplier[n * ratios + t / o.each] * a.advantage[n] * o.weight;
      for (int k = 0; k < kHeadChoices; ++k) {
        const float log_p = a.logits[at * kHeadChoices + k] / o.temperature - norm[static_cast<std::size_t>(t)];
        a.d_logits[at * kHeadChoices + k] = d_logit(o, log_p, a.action[at] == k, by_log_prob, a.entropy[at]);
      }
    }
  }
}

void host_adamw(const AdamWArrays& a) {
  if (!std::isfinite(*a.norm)) return;
  AdamWStep<float> step = a.step;
  step.scale = smaller_of(1.0F, a.max_norm / (*a.norm + 1e-6F));
  for (std::int64_t i = 0; i < a.count; ++i) {
    if (a.type == Value::kFloat) {
      adamw_step(step, static_cast<const float*>(a.gradient)[i], static_cast<float*>(a.value)[i], a.first[i],
                 a.second[i]);
      continue;
    }
    auto* const high = static_cast<std::uint16_t*>(a.value);
    float parameter = join({high[i], a.low[i]});
    adamw_step(step, from_bf16(static_cast<const std::uint16_t*>(a.gradient)[i]), parameter, a.first[i], a.second[i]);
    const SplitFloat parts = split(parameter);
    high[i] = parts.high, a.low[i] = parts.low;
  }
}

void host_average(const AverageArrays& a) {
  for (std::int64_t i = 0; i < a.count; ++i) {
    if (a.type == Value::kFloat) {
      float& average = static_cast<float*>(a.average)[i];
      average += a.step * (static_cast<const float*>(a.value)[i] - average);
      continue;
    }
    auto* const high = static_cast<std::uint16_t*>(a.average);
    const float average = join({high[i], a.low[i]}), value = from_bf16(static_cast<const std::uint16_t*>(a.value)[i]);
    const SplitFloat parts = split(average + a.step * (value - average));
    high[i] = parts.high, a.low[i] = parts.low;
  }
}

}  // namespace gipo
