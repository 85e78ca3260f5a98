#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gipo/core/random.h"
#include "gipo/learner/learner.h"

namespace gipo {

// The two backends that learner.check names, "cpu, cpu64".
std::pair<std::string, std::string> checked_backends(const LearnerOptions& options);

// Runs two backends on the same batches and says how far apart they come out. The first one's results are the run's.
// Before every update the second takes over the first one's state, so that what is seen is the difference of one update
// and not of all so far.
class CheckLearner final : public Learner {
 public:
  CheckLearner(const LearnerSetup& setup, RandomStream random, ThreadPool& pool);
  CheckLearner(std::pair<std::string, std::string> names, std::unique_ptr<Learner> one, std::unique_ptr<Learner> other);

  void stage(const Batch& batch) override;
  void begin_update(const UpdateContext& context) override;
  const UpdateStats& figures() override;
  Diagnostics& diagnostics() override { return one_->diagnostics(); }
  std::vector<std::pair<std::string, std::vector<double>>> gradients() const override { return one_->gradients(); }
  std::string remarks() const override;

  std::int64_t version() const override { return one_->version(); }
  std::int64_t skipped_updates() const override { return one_->skipped_updates(); }
  void set_observation_scale(const RunningMoments& moments) override;
  void set_reward_scale(const RunningMoments& returns) override;
  void copy_weights(Weights& out) const override { one_->copy_weights(out); }

  // The largest so far: of every tensor, the largest difference of an entry of its gradient as a share of the tensor's
  // largest entry (or of a thousandth of its network's, where that is more: a sum that cancels has no digits).
  const std::map<std::string, double>& differences() const { return differences_; }

 protected:
  std::vector<LearnerTensor> tensors() override { return one_->tensors(); }
  void save_rest(ByteWriter& out) const override { one_->save_rest(out); }
  void load_rest(ByteReader& in) override { one_->load_rest(in); }

 private:
  void compare();

  std::pair<std::string, std::string> names_;
  std::unique_ptr<Learner> one_, other_;
  UpdateStats stats_;
  std::map<std::string, double> differences_;
};

}  // namespace gipo
