#include "gipo/learner/rank_leader.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>

#include "gipo/data/encode.h"
#include "gipo/io/bytes.h"
#include "gipo/policy/own_parameters.h"
#include "gipo/policy/vla_spec.h"

namespace gipo {

// As the learner knows a policy. What actors ask is asked of others.
class RankedPolicy final : public Policy<float>, public OwnParameters {
 public:
  RankedPolicy(RankLeader& leader, bool average, std::unique_ptr<Policy<float>> alone, const PolicyRoom& room)
      : leader_(leader), average_(average), alone_(std::move(alone)), steps_(room.learned) {}

  std::vector<TensorSlice> tensors(Part part) const override { return alone_->tensors(part); }
  void initialise(Part part, std::span<float> parameters, RandomStream& random) const override {
    if (!leader_.in_place()) return alone_->initialise(part, parameters, random);
    if (part == Part::kPolicy)
      leader_.ask(RankCommand::kMakeModel, [&](ByteWriter& out, std::size_t) { random.save(out); });
  }
  void constrain(std::span<float> policy) const override { alone_->constrain(policy); }
  OwnParameters* own() override { return leader_.in_place() ? this : nullptr; }

  void see(const PolicyParameters<float>& parameters, const PolicyInput& input) override {
    leader_.see(*parameters.scale, input, steps_);
    rows_ = input.rows;
  }
  void see_as(const PolicyParameters<float>&, const Policy&) override {
    leader_.ask(RankCommand::kSeeAverage, [](ByteWriter&, std::size_t) {});
  }
  void forward(std::size_t rows) override {
    GIPO_CHECK(rows == steps_);
    leader_.ask(RankCommand::kForward, [&](ByteWriter& out, std::size_t) { out.value(average_); });
  }
  void log_prob(const float* actions, float* out) const override {
    const auto write = [&](ByteWriter& to, std::size_t rank) {
      to.value(average_);
      to.array(rows_of(actions, rank));
    };
    leader_.gather(leader_.ask(RankCommand::kLogProb, write), out);
  }
  void entropy(float* out) const override {
    leader_.gather(leader_.ask(RankCommand::kEntropy, [](ByteWriter&, std::size_t) {}), out);
  }
  void kl_divergence(const Policy&, float* out) const override {
    leader_.gather(leader_.ask(RankCommand::kDivergence, [](ByteWriter&, std::size_t) {}), out);
  }
  void policy_gradient(const float* actions, const PolicyLoss<float>& loss, std::span<float>) override {
    const auto write = [&](ByteWriter& to, std::size_t rank) {
      to.array(rows_of(actions, rank));
      to.array(rows_of(loss.d_log_prob, rank));
      to.value(loss.entropy_coef);
      to.value(loss.kl_coef);
    };
    leader_.sum_gradient(Part::kPolicy, leader_.ask(RankCommand::kPolicyGradient, write));
  }
  const float* values() override {
    // Of each rank those of its steps, then those of the rows behind all steps.
    const std::vector<std::string> answers = leader_.ask(RankCommand::kValues, [](ByteWriter&, std::size_t) {});
    values_.resize(rows_);
    for (std::size_t r = 0; r < answers.size(); ++r) {
      const RankLeader::RankShare& s = leader_.shares_[r];
      const std::size_t steps = s.end - s.begin, after = s.after_end - s.after_begin;
      if (steps == 0) continue;
      GIPO_CHECK(answers[r].size() == (steps + after) * sizeof(float));
      std::memcpy(values_.data() + s.begin, answers[r].data(), steps * sizeof(float));
      std::memcpy(values_.data() + s.after_begin, answers[r].data() + steps * sizeof(float), after * sizeof(float));
    }
    return values_.data();
  }
  void value_gradient(const float* d_values, std::size_t rows, std::span<float>) override {
    GIPO_CHECK(rows == steps_);
    const auto write = [&](ByteWriter& to, std::size_t rank) {
      const RankLeader::RankShare& s = leader_.shares_[rank];
      to.array(std::span<const float>(d_values + s.begin, s.end - s.begin));
    };
    leader_.sum_gradient(Part::kCritic, leader_.ask(RankCommand::kValueGradient, write));
  }

  // A model in place: every rank has it whole, and what it learns with in parts.
  std::array<double, 2> find_gradients() override {
    const std::vector<std::string> norms = leader_.ask(RankCommand::kFindGradients, [](ByteWriter&, std::size_t) {});
    return ByteReader(norms[0]).value<std::array<double, 2>>();
  }
  void step(const OwnStep& step) override {
    leader_.ask(RankCommand::kStepModel, [&](ByteWriter& out, std::size_t) { out.value(step); });
  }
  std::shared_ptr<SharedModel> share() const override { return leader_.own().share(); }
  std::size_t state_bytes() override { return leader_.own().state_bytes(); }
  void save(const std::function<void(std::string_view)>& take) override {
    leader_.ask_others(RankCommand::kSaveModel, [&] { leader_.own().save(take); });
  }
  void load(const std::function<void(char*, std::size_t)>& give) override {
    leader_.ask_others(RankCommand::kLoadModel, [&] { leader_.own().load(give); });
  }

  void choose(std::span<const ActionRow>) override { GIPO_NOT_REACHED(); }
  DistributionView<float> distribution() const override { GIPO_NOT_REACHED(); }
  void add_to(OnnxGraph&, std::span<const float>, const OnnxObservation&, const std::string&) const override {
    GIPO_NOT_REACHED();
  }

 private:
  std::span<const float> rows_of(const float* values, std::size_t rank) const {
    const RankLeader::RankShare& s = leader_.shares_[rank];
    const std::size_t dims = leader_.model_.distribution.dims();
    return {values + s.begin * dims, (s.end - s.begin) * dims};
  }

  RankLeader& leader_;
  bool average_;
  std::unique_ptr<Policy<float>> alone_;  // knows names and shapes; never sees anything
  std::size_t steps_, rows_ = 0;
  std::vector<float> values_;  // [rows]
};

namespace {

constexpr std::chrono::seconds kHeartbeat(30);

// Rows [first, second) of a rank, as evenly as they go.
std::pair<std::size_t, std::size_t> rows_of_rank(std::size_t rows, int rank, int ranks) {
  const auto at = [&](int r) { return rows * static_cast<std::size_t>(r) / static_cast<std::size_t>(ranks); };
  return {at(rank), at(rank + 1)};
}

// The floats of an observation as one field, as ranks know them.
ModelSpec flat(const ModelSpec& model) {
  return policy_from_safetensors(weights_to_safetensors(model, empty_weights(model), ""), "model").model;
}

RankSetup setup_of(const LearnerSetup& setup) {
  const PolicyRoom room = learner_room(setup);
  return {flat(setup.model), room.learned, keeps_average(setup), looks_at_average(setup), room.device != "cpu",
          room.bf16,         room.tf32};
}

}  // namespace

RankLeader::RankLeader(std::shared_ptr<RankGroup> group, const LearnerSetup& setup)
    : group_(std::move(group)), model_(setup.model), in_place_(is_in_place(setup.model)) {
  const RankSetup ours = setup_of(setup);
  ask_others(
      RankCommand::kSetUp, [&] { part_ = std::make_unique<RankPart>(*group_, ours); }, to_bytes(ours, ""));
  heartbeat_ = std::jthread([this](const std::stop_token& stop) {
    std::mutex waiting;
    std::condition_variable_any wake;
    std::unique_lock lock(waiting);
    while (!wake.wait_for(lock, stop, kHeartbeat, [] { return false; }) && !stop.stop_requested()) {
      try {
        ask(RankCommand::kNothing, [](ByteWriter&, std::size_t) {});
      } catch (const RanksLost&) {  // the next update says so
        return;
      }
    }
  });
}

RankLeader::~RankLeader() {
  heartbeat_.request_stop();
  heartbeat_.join();
  try {
    ask(RankCommand::kEnd, [](ByteWriter&, std::size_t) {});
  } catch (const std::exception&) {  // whoever is gone need not be told
  }
}

std::unique_ptr<Policy<float>> RankLeader::make_policy(bool average, const PolicyRoom& room) {
  return std::make_unique<RankedPolicy>(*this, average, gipo::make_policy<float>(model_, {1, 0, !average}), room);
}

void RankLeader::bind(const RankArrays& arrays) {
  arrays_ = arrays;
  part_->bind(arrays);
}

OwnParameters& RankLeader::own() { return *part_->policy().own(); }

void RankLeader::ask_others(RankCommand command, const std::function<void()>& ours, std::string_view message) {
  const std::lock_guard lock(mutex_);
  ByteWriter out;
  out.value(command);
  out.append(message);
  for (int r = 1; r < group_->size(); ++r) group_->send(r, out.bytes());
  ours();
}

std::vector<std::string> RankLeader::ask(RankCommand command,
                                         const std::function<void(ByteWriter&, std::size_t rank)>& write) {
  const auto ranks = static_cast<std::size_t>(group_->size());
  const std::lock_guard lock(mutex_);
  std::string own;
  for (std::size_t r = ranks; r-- > 0;) {
    ByteWriter out;
    out.value(command);
    write(out, r);
    if (r > 0) {
      group_->send(static_cast<int>(r), out.bytes());
    } else {
      own = out.take();
    }
  }
  ByteReader in(own);
  in.value<RankCommand>();
  std::vector<std::string> all = {part_->execute(command, in)};
  for (std::size_t r = 1; answers(command) && r < ranks; ++r) all.push_back(group_->receive(static_cast<int>(r)));
  return all;
}

void RankLeader::gather(const std::vector<std::string>& answers, float* out) const {
  auto* to = reinterpret_cast<char*>(out);
  for (const std::string& answer : answers) to = std::ranges::copy(answer, to).out;
}

void RankLeader::see(const ObservationScale& scale, const PolicyInput& input, std::size_t steps) {
  if (std::exchange(changed_, false)) {
    ask(RankCommand::kParameters, [](ByteWriter&, std::size_t) {});
  }
  split(input, steps);
  ask(RankCommand::kSee,
      [&](ByteWriter& out, std::size_t rank) { write_share(out, shares_[rank], scale, input, steps); });
}

// Whole sequences where there are any, as evenly as they go.
void RankLeader::split(const PolicyInput& input, std::size_t steps) {
  const int ranks = group_->size();
  shares_.clear();
  const std::size_t behind = input.rows - steps;
  std::size_t sequence = 0;
  for (int r = 0; r < ranks; ++r) {
    const auto [begin, end] = rows_of_rank(steps, r, ranks);
    if (input.sequences.empty()) {
      const auto [first, last] = rows_of_rank(behind, r, ranks);
      shares_.push_back({begin, end, steps + first, steps + last, 0, 0});
      continue;
    }
    const std::size_t first = sequence, at = shares_.empty() ? 0 : shares_.back().end;
    std::size_t to = at;
    while (sequence < input.sequences.size() && (to < end || r == ranks - 1)) {
      to += input.sequences[sequence++].length;
    }
    const std::size_t after = steps + (behind > 0 ? first : 0), after_end = steps + (behind > 0 ? sequence : 0);
    shares_.push_back({at, to, after, after_end, first, sequence - first});
  }
}

void RankLeader::write_share(ByteWriter& out, const RankShare& share, const ObservationScale& scale,
                             const PolicyInput& input, std::size_t steps) const {
  const std::size_t ours = share.end - share.begin, after = share.after_end - share.after_begin;
  out.value<std::uint64_t>(ours);
  out.value<std::uint64_t>(ours + after);
  out.array(scale.mean);
  out.array(scale.inverse_std);
  out.value(scale.limit);
  const auto sequences =
      input.sequences.empty() ? input.sequences : input.sequences.subspan(share.first_sequence, share.sequences);
  // Rows [first, second) of the batch, which follow each other in the share.
  std::vector<std::pair<std::size_t, std::size_t>> rows = {{share.begin, share.end},
                                                           {share.after_begin, share.after_end}};
  for (const Sequence& s : sequences) rows.emplace_back(s.context_begin, s.context_begin + s.context);
  std::size_t count = 0;
  for (const auto& [first, last] : rows) count += last - first;

  if (model_.observation_size > 0) {
    std::vector<float> floats(count * model_.observation_size);
    std::vector<const std::byte*> at(model_.fields.size());
    float* to = floats.data();
    for (const auto& [first, last] : rows) {
      for (std::size_t f = 0; f < at.size(); ++f) at[f] = input.columns[f] + first * model_.fields[f].bytes();
      encode(model_.fields, at, last - first, to);
      to += (last - first) * model_.observation_size;
    }
    out.array(std::span<const std::byte>(std::as_bytes(std::span<const float>(floats))));
  }
  const auto append = [&](std::size_t f) {
    const std::size_t bytes = model_.fields[f].bytes();
    out.value<std::uint64_t>(count * bytes);
    for (const auto& [first, last] : rows) {
      out.append(std::span<const std::byte>(input.columns[f] + first * bytes, (last - first) * bytes));
    }
  };
  for (std::size_t f = 0; f < model_.fields.size(); ++f) {
    if (model_.fields[f].raw) append(f);
  }
  if (model_.distribution.masked) append(mask_field(model_.fields));

  std::span<const float> state;
  if (input.state) {
    const std::size_t size = model_.state_size();
    state = {input.state + share.first_sequence * size, share.sequences * size};
  }
  out.array(state);
  std::vector<Sequence> local;
  std::size_t context = ours + after;
  for (const Sequence& s : sequences) {
    const std::size_t next = after > 0 ? ours + local.size() : Sequence::kNone;
    local.push_back({s.begin - share.begin, s.length, next, context, s.context});
    context += s.context;
  }
  out.array(local);
  GIPO_CHECK(share.end <= steps);
}

void RankLeader::sum_gradient(Part part, const std::vector<std::string>& answers) {
  double sum = 0;
  for (const std::string& answer : answers) sum += ByteReader(answer).value<double>();
  norm_[index(part)] = std::sqrt(sum);
}

void RankLeader::step(Part part, const AdamWStep<float>& constants, float average_step) {
  ask(RankCommand::kStep, [&](ByteWriter& out, std::size_t) {
    out.value(static_cast<std::uint8_t>(index(part)));
    out.value(constants);
    out.value(average_step);
  });
}

std::vector<float> RankLeader::gradient(Part part) {
  std::vector<float> all((part == Part::kPolicy ? arrays_.policy : arrays_.critic).size());
  gather(ask(RankCommand::kReadGradient,
             [&](ByteWriter& out, std::size_t) { out.value(static_cast<std::uint8_t>(index(part))); }),
         all.data());
  return all;
}

void RankLeader::read_moments(Part part, Moment moment, std::size_t begin, std::span<float> values) {
  const auto write = [&](ByteWriter& out, std::size_t) {
    out.value(static_cast<std::uint8_t>(index(part)));
    out.value(moment);
    out.value<std::uint64_t>(begin);
    out.value<std::uint64_t>(begin + values.size());
  };
  gather(ask(RankCommand::kReadMoments, write), values.data());
}

void RankLeader::write_moments(Part part, Moment moment, std::size_t begin, std::span<const float> values) {
  ask(RankCommand::kWriteMoments, [&](ByteWriter& out, std::size_t) {
    out.value(static_cast<std::uint8_t>(index(part)));
    out.value(moment);
    out.value<std::uint64_t>(begin);
    out.value<std::uint64_t>(begin + values.size());
    out.array(values);
  });
}

}  // namespace gipo
