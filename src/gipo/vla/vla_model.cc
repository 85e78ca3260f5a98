#include "gipo/vla/vla_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/core/rank_group.h"

namespace gipo {

std::string VlaMemory::words() const {
  const auto gib = [](double bytes) { return bytes / (1024.0 * 1024 * 1024); };
  std::string all = fmt::format("weights {:.1f} GiB, gradients {:.1f}, master {:.1f}, moments {:.1f}", gib(weights),
                                gib(gradients), gib(master), gib(moments));
  if (average > 0) all += fmt::format(", average {:.1f}", gib(average));
  if (acting > 0) all += fmt::format(", weights of 8 bits {:.1f}", gib(acting));
  return all + fmt::format(": {:.1f} GiB", gib(sum()));
}

VlaMemory vla_memory(const VlaSetup& setup) {
  double all = 0, trained = 0, products = 0;
  for (const VlaTensor& t : vla_tensors(setup.config, setup.train.lora)) {
    const auto size = static_cast<double>(t.size());
    all += size;
    if (is_trained(setup.train, t.part)) trained += size;
    if (t.part == VlaPart::kLanguage && t.shape.size() == 2 && t.name.find(".layers.") != std::string::npos)
      products += size;
  }
  const bool bf16 = setup.device != "cpu";
  const double each = bf16 ? 2 : 4, ranks = setup.ranks ? setup.ranks->size() : 1;
  VlaMemory memory;
  memory.weights = all * each;
  memory.gradients = trained * each;
  memory.master = bf16 ? trained * 2 / ranks : 0;
  memory.moments = trained * 8 / ranks;
  memory.average = setup.average ? trained * 4 : 0;
  memory.acting = setup.act_bits == 8 ? products : 0;
  return memory;
}

void choose_chunk(std::span<const float> logits, double temperature, RandomStream* random,
                  std::span<std::int32_t> action, std::span<float> log_prob) {
  GIPO_CHECK(logits.size() == action.size() * kHeadChoices && log_prob.size() == action.size());
  for (std::size_t t = 0; t < action.size(); ++t) {
    const std::span<const float> row = logits.subspan(t * kHeadChoices, kHeadChoices);
    const auto best = std::max_element(row.begin(), row.end());
    double sum = 0;
    const auto weight = [&](std::size_t k) { return std::exp(static_cast<double>(row[k] - *best) / temperature); };
    for (std::size_t k = 0; k < row.size(); ++k) sum += weight(k);
    std::size_t chosen = static_cast<std::size_t>(best - row.begin());
    if (random != nullptr) {
      double left = random->uniform() * sum;
      for (chosen = 0; chosen + 1 < row.size() && (left -= weight(chosen)) >= 0;) ++chosen;
    }
    action[t] = static_cast<std::int32_t>(chosen);
    log_prob[t] = static_cast<float>(static_cast<double>(row[chosen] - *best) / temperature - std::log(sum));
  }
}

}  // namespace gipo
