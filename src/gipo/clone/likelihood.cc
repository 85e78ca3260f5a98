#include "gipo/clone/likelihood.h"

#include <algorithm>
#include <cmath>

namespace gipo {
namespace {

constexpr std::size_t kRows = 64;  // of a forward

// At most so many, spread evenly.
std::vector<std::size_t> some_of(std::span<const std::size_t> steps, std::int64_t most) {
  const std::size_t count = std::min(steps.size(), static_cast<std::size_t>(most));
  std::vector<std::size_t> some;
  for (std::size_t i = 0; i < count; ++i) some.push_back(steps[i * steps.size() / count]);
  return some;
}

}  // namespace

LikelihoodMeter::LikelihoodMeter(const Demonstrations& demonstrations, const DemonstrationUse& use,
                                 const PolicyRoom& room)
    : demonstrations_(demonstrations),
      model_(use.model),
      learned_(some_of(demonstrations.learned(), use.options.measured_steps)),
      held_out_(some_of(demonstrations.held_out(), use.options.measured_steps)),
      batch_(kRows, use.transition),
      policy_(make_policy<float>(use.model, {kRows, kRows, false, room.device, room.bf16})) {
  for (const std::int64_t choices : model_.distribution.choices) parts_of_choice_ += choices > 0;
}

LikelihoodMeter::~LikelihoodMeter() = default;

Likelihood LikelihoodMeter::measure(std::span<const std::size_t> steps, const Weights& weights) {
  const std::size_t dims = model_.distribution.dims();
  std::vector<const std::byte*> columns(model_.fields.size());
  std::vector<float> log_prob(kRows * dims), mode(kRows * dims);
  Likelihood sum;
  for (std::size_t at = 0; at < steps.size(); at += kRows) {
    const std::size_t n = std::min(kRows, steps.size() - at);
    demonstrations_.fill(steps.subspan(at, n), weights.version, batch_);
    std::as_const(batch_).locate_observation(0, columns);
    policy_->see(parameters_of(weights), {columns, n});
    policy_->forward(n);
    const float* const action = batch_.action().data();
    policy_->log_prob(action, log_prob.data());
    std::vector<ActionRow> rows(n);
    for (std::size_t i = 0; i < n; ++i) rows[i].action = {mode.data() + i * dims, dims};
    policy_->choose(rows);
    for (std::size_t i = 0; i < n; ++i) {
      bool all = true;
      for (std::size_t d = 0; d < dims; ++d) {
        const std::size_t k = i * dims + d;
        sum.log_likelihood += log_prob[k];
        if (model_.distribution.choices[d] > 0) {
          const bool right = mode[k] == action[k];
          sum.accuracy += right;
          all = all && right;
        } else {
          sum.error += std::abs(mode[k] - action[k]);
        }
      }
      sum.exact += all;
    }
  }
  const auto count = static_cast<double>(steps.size()), choices = static_cast<double>(parts_of_choice_),
             numbers = static_cast<double>(dims - parts_of_choice_);
  return {sum.log_likelihood / count, choices > 0 ? sum.accuracy / (count * choices) : 0,
          choices > 0 ? sum.exact / count : 0, numbers > 0 ? sum.error / (count * numbers) : 0};
}

void LikelihoodMeter::append_to(std::vector<std::pair<std::string, double>>& figures, const Weights& weights) {
  const auto append = [&](const std::string& whose, std::span<const std::size_t> steps) {
    if (steps.empty()) return;
    const Likelihood of = measure(steps, weights);
    figures.emplace_back(whose + "_log_likelihood", of.log_likelihood);
    if (parts_of_choice_ > 0) {
      figures.emplace_back(whose + "_accuracy", of.accuracy);
      figures.emplace_back(whose + "_exact", of.exact);
    }
    if (parts_of_choice_ < model_.distribution.dims()) figures.emplace_back(whose + "_action_error", of.error);
  };
  append("learned", learned_);
  append("heldout", held_out_);
}

}  // namespace gipo
