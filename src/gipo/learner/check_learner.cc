#include "gipo/learner/check_learner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"

namespace gipo {
namespace {

constexpr double kLeastShare = 1e-3;

std::unique_ptr<Learner> make_part(LearnerSetup setup, const std::string& backend, const RandomStream& random,
                                   ThreadPool& pool) {
  setup.learner.backend = backend;
  return make_learner(setup, random, pool);
}

std::string network_of(const std::string& tensor) { return tensor.substr(0, tensor.find('.')); }

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double v : values) most = std::max(most, std::abs(v));
  return most;
}

}  // namespace

std::pair<std::string, std::string> checked_backends(const LearnerOptions& options) {
  const auto trimmed = [](std::string text) {
    text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  const std::size_t comma = options.check.find(',');
  if (comma == std::string::npos) return {trimmed(options.check), ""};
  return {trimmed(options.check.substr(0, comma)), trimmed(options.check.substr(comma + 1))};
}

CheckLearner::CheckLearner(const LearnerSetup& setup, RandomStream random, ThreadPool& pool)
    : CheckLearner(checked_backends(setup.learner),
                   make_part(setup, checked_backends(setup.learner).first, random, pool),
                   make_part(setup, checked_backends(setup.learner).second, random, pool)) {}

CheckLearner::CheckLearner(std::pair<std::string, std::string> names, std::unique_ptr<Learner> one,
                           std::unique_ptr<Learner> other)
    : names_(std::move(names)), one_(std::move(one)), other_(std::move(other)) {}

void CheckLearner::stage(const Batch& batch) {
  const std::string state = bytes_of([this](ByteWriter& out) { one_->save(out); });
  ByteReader in(state);
  other_->load(in);
  one_->stage(batch);
  other_->stage(batch);
}

void CheckLearner::begin_update(const UpdateContext& context) {
  // A network that does not learn in this update keeps its gradient of before, which the other one never had.
  one_->begin_update(context);
  other_->begin_update(context);
  stats_ = one_->figures();
  if (stats_.skipped != other_->figures().skipped) {
    throw RunError(fmt::format("learner.check: update {} is finite with one of {} and {} alone", one_->version(),
                               names_.first, names_.second));
  }
  if (!stats_.skipped) compare();
}

void CheckLearner::compare() {
  const auto ours = one_->gradients(), theirs = other_->gradients();
  GIPO_CHECK(ours.size() == theirs.size());
  std::map<std::string, double> scale;  // of each network
  for (const auto& [name, values] : theirs) {
    double& most = scale[network_of(name)];
    most = std::max(most, largest(values));
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const auto& [name, values] = ours[i];
    const std::vector<double>& wanted = theirs[i].second;
    GIPO_CHECK(theirs[i].first == name && wanted.size() == values.size());
    double most = 0;
    for (std::size_t k = 0; k < values.size(); ++k) most = std::max(most, std::abs(values[k] - wanted[k]));
    const double unit = std::max(largest(wanted), kLeastShare * scale[network_of(name)]);
    double& kept = differences_[name];
    kept = std::max(kept, unit > 0 ? most / unit : most);
  }
}

const UpdateStats& CheckLearner::figures() {
  stats_.others.clear();
  for (const auto& [name, difference] : differences_) stats_.others.emplace_back("difference." + name, difference);
  return stats_;
}

std::string CheckLearner::remarks() const {
  const auto most = std::ranges::max_element(differences_, {}, [](const auto& d) { return d.second; });
  if (most == differences_.end()) return {};
  return fmt::format("{} against {}: the largest relative difference of a gradient is {:.3g}, in {}", names_.first,
                     names_.second, most->second, most->first);
}

void CheckLearner::set_observation_scale(const RunningMoments& moments) { one_->set_observation_scale(moments); }
void CheckLearner::set_reward_scale(const RunningMoments& returns) { one_->set_reward_scale(returns); }

}  // namespace gipo
