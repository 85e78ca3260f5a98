#pragma once

#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "gipo/learner/learner.h"
#include "gipo/learner/rank_part.h"

namespace gipo {

// Rank 0's side of several ranks: it has the batch, gives every rank its share, and takes what they find to where one rank
// alone would have found it. So all that concerns a whole batch (advantages and their scale, figures, diagnostics, whether
// an update is finite) is the code of one rank, on the numbers of all.
//
//   batch -> shares -> each rank: forward -> log-probs, values -> rank 0: advantages, multipliers -> d log pi, d value
//         -> each rank: gradient of its share -> summed, each rank its part -> AdamW of that part -> parameters to all
//
// Belongs to a learner. Threads may ask at once: what is asked of the ranks is asked one thing after the other.
class RankLeader {
 public:
  RankLeader(std::shared_ptr<RankGroup> group, const LearnerSetup& setup);
  ~RankLeader();

  // The policy that learns, or its average, spread over the ranks. Must not outlive this.
  std::unique_ptr<Policy<float>> make_policy(bool average, const PolicyRoom& room);
  // The learner's arrays, in which it has its part too.
  void bind(const RankArrays& arrays);
  // The parameters, or the average, were changed here: the ranks must be told.
  void parameters_changed() { changed_ = true; }

  double norm(Part part) const { return norm_[index(part)]; }  // of the last gradient
  void step(Part part, const AdamWStep<float>& constants, float average_step);
  std::vector<float> gradient(Part part);
  // Values [begin, begin + values.size()) of the first or the second moment.
  enum class Moment : std::uint8_t { kFirst, kSecond };
  void read_moments(Part part, Moment moment, std::size_t begin, std::span<float> values);
  void write_moments(Part part, Moment moment, std::size_t begin, std::span<const float> values);

 private:
  friend class RankedPolicy;
  struct RankShare {
    std::size_t begin, end;              // steps
    std::size_t after_begin, after_end;  // rows behind all steps
    std::size_t first_sequence, sequences;
  };

  static std::size_t index(Part part) { return part == Part::kPolicy ? 0 : 1; }
  bool in_place() const { return in_place_; }
  OwnParameters& own();  // of rank 0's part
  // The same message to every rank, or one for each; the answers, of rank 0 first.
  std::vector<std::string> ask(RankCommand command, const std::function<void(ByteWriter&, std::size_t rank)>& write);
  // The same message to all but rank 0, which does `ours` beside them.
  void ask_others(RankCommand command, const std::function<void()>& ours, std::string_view message = {});
  void gather(const std::vector<std::string>& answers, float* out) const;
  void see(const ObservationScale& scale, const PolicyInput& input, std::size_t steps);
  void split(const PolicyInput& input, std::size_t steps);
  void write_share(ByteWriter& out, const RankShare& share, const ObservationScale& scale, const PolicyInput& input,
                   std::size_t steps) const;
  void sum_gradient(Part part, const std::vector<std::string>& answers);

  std::shared_ptr<RankGroup> group_;
  ModelSpec model_;  // the learner's
  bool in_place_;
  std::unique_ptr<RankPart> part_;
  RankArrays arrays_;
  bool changed_ = true;
  std::vector<RankShare> shares_;  // [ranks] of the batch
  double norm_[2] = {0, 0};
  std::mutex mutex_;
  std::jthread heartbeat_;  // the last to begin, the first to end
};

}  // namespace gipo
