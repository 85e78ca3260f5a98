#include "gipo/policy/large_policy.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/core/rank_group.h"
#include "gipo/policy/own_parameters.h"
#include "gipo/policy/vla_spec.h"
#include "gipo/vla/shared_model.h"
#include "gipo/vla/vla_checkpoint.h"

namespace gipo {
namespace {

// Observations as the model takes them, in memory of their own: those that are learned from are read a second time.
struct Seen {
  std::size_t rows = 0;
  std::vector<std::uint8_t> images;  // [rows, cameras, image]
  std::vector<float> proprio;        // [rows, observation_size]
  std::vector<std::vector<std::int32_t>> tokens;
};

VlaSetup setup_of(const LargeForm& form, const PolicyRoom& room) {
  VlaSetup setup;
  setup.config = form.config;
  setup.train = form.train;
  setup.device = room.device;
  setup.recompute = form.recompute;
  setup.act_bits = static_cast<int>(form.act_bits);
  setup.average = room.average;
  setup.deterministic = true;
  setup.record = false;
  setup.ranks = room.ranks;
  return setup;
}

class LargePolicy final : public Policy<float>, public OwnParameters {
 public:
  LargePolicy(const ModelSpec& spec, const PolicyRoom& room)
      : spec_(spec),
        room_(room),
        form_(large_form(spec)),
        cameras_(static_cast<std::size_t>(cameras_of(spec))),
        image_(static_cast<std::size_t>(form_.config.image * form_.config.image * 3)),
        pi_(spec.distribution, room.learned) {}

  std::vector<TensorSlice> tensors(Part) const override { return {}; }
  void initialise(Part, std::span<float>, RandomStream& random) const override {
    if (room_.learned == 0 || model_) return;
    auto model = make_large_model(setup_of(form_, room_));
    model->fill(random.next_u64());
    if (!form_.folder.empty()) VlaCheckpoint(form_.folder).load(*model);
    if (room_.average) model->begin_average();
    model_ = std::make_shared<SharedModel>(std::move(model));
  }
  void constrain(std::span<float>) const override {}
  OwnParameters* own() override { return room_.learned > 0 ? this : nullptr; }

  void see(const PolicyParameters<float>& parameters, const PolicyInput& input) override {
    GIPO_CHECK(input.columns.size() == spec_.fields.size() && input.rows <= room_.rows);
    read(parameters, input);
    if (!model_ && !parameters.model) {
      throw Error(
          "policy.model: a model in place (micro_batch) acts in its own run alone; gipo resume goes on with it");
    }
    SharedModel& model = model_ ? *model_ : *parameters.model;
    look(*this, seen_.rows, [&](const VlaInputs& inputs) {
      return room_.joined ? model.act(inputs, form_.micro_batch)
                          : model.with([&](LargeModel& m) { return model_ ? m.infer(inputs) : m.act(inputs); });
    });
  }
  // The other is the learner's, and this one looks at the average of its parameters.
  void see_as(const PolicyParameters<float>&, const Policy<float>& other) override {
    const auto& learner = static_cast<const LargePolicy&>(other);
    look(learner, std::min(learner.seen_.rows, room_.rows), [&](const VlaInputs& inputs) {
      return learner.model_->with([&](LargeModel& m) { return m.infer_average(inputs); });
    });
  }

  void forward(std::size_t rows) override {
    GIPO_CHECK(rows <= values_.size());
    evaluated_ = rows;
    if (room_.learned > 0) pi_.evaluate(distribution(), rows, nullptr);
  }
  void choose(std::span<const ActionRow> rows) override {
    GIPO_CHECK(rows.size() == evaluated_);
    choose_actions(spec_.distribution, distribution(), rows, nullptr);
  }
  DistributionView<float> distribution() const override { return {logits_.data(), {}}; }
  void log_prob(const float* actions, float* out) const override { pi_.log_prob(actions, out); }
  void entropy(float* out) const override { pi_.entropy(out); }
  void kl_divergence(const Policy<float>& other, float* out) const override {
    pi_.kl_divergence(static_cast<const LargePolicy&>(other).pi_, out);
  }
  void policy_gradient(const float* actions, const PolicyLoss<float>& loss, std::span<float>) override {
    by_logits_.resize(evaluated_ * spec_.distribution.outputs());
    DistributionLoss<float> of_logits{loss.d_log_prob, loss.entropy_coef, loss.kl_coef, nullptr};
    if (loss.other) of_logits.other = &static_cast<const LargePolicy*>(loss.other)->pi_;
    pi_.gradient(actions, of_logits, by_logits_.data(), {});
    for (float& v : by_logits_) v /= static_cast<float>(spec_.options.temperature);
  }
  const float* values() override { return values_.data(); }
  void value_gradient(const float* d_values, std::size_t rows, std::span<float>) override {
    by_values_.assign(d_values, d_values + rows);
  }
  void add_to(OnnxGraph&, std::span<const float>, const OnnxObservation&, const std::string&) const override {
    throw Error("policy.encoder: openvla_oft has no form in ONNX");
  }

  std::array<double, 2> find_gradients() override {
    GIPO_CHECK(by_values_.size() == evaluated_ && by_logits_.size() == evaluated_ * spec_.distribution.outputs());
    const std::size_t outputs = spec_.distribution.outputs();
    model_->with([](LargeModel& m) { m.drop_gradient(); });  // of an update that was skipped
    each_piece(evaluated_, [&](std::size_t begin, std::size_t rows) {
      const VlaInputs inputs = inputs_of(begin, rows);
      model_->with([&](LargeModel& m) {
        m.accumulate(inputs, {by_logits_.data() + begin * outputs, rows * outputs}, {by_values_.data() + begin, rows});
      });
    });
    return model_->with([](LargeModel& m) { return m.norms(); });
  }
  void step(const OwnStep& s) override {
    const VlaStep step{s.rates[0],     s.rates[1], s.beta1, s.beta2,  s.epsilon,
                       s.weight_decay, s.max_norm, true,    s.average};
    for (int n = held_.load(); n > 0; n = held_.load()) held_.wait(n);
    model_->with([&](LargeModel& m) { m.step(step); });
  }
  std::shared_ptr<SharedModel> share() const override { return model_; }

  std::size_t state_bytes() override {
    return model_->with([&](LargeModel& m) {
      std::size_t bytes = m.state_bytes();
      each_trained(m, [&](std::size_t i) { bytes += bytes_of(m, i); });
      return bytes;
    });
  }
  void save(const std::function<void(std::string_view)>& take) override {
    const LargeModel& m = model_->still();
    if (first_rank()) each_trained(m, [&](std::size_t i) { m.get_tensor(i, false, take); });
    m.save_state(take);
  }
  std::shared_ptr<void> hold() override {
    ++held_;
    return {this, [](LargePolicy* p) {
              --p->held_;
              p->held_.notify_all();
            }};
  }
  void load(const std::function<void(char*, std::size_t)>& give) override {
    model_->with([&](LargeModel& m) {
      std::string bytes;
      const auto read = [&](std::size_t i) {
        bytes.resize(bytes_of(m, i));
        give(bytes.data(), bytes.size());
        m.set_tensor(i, m.tensor_type(), bytes);
      };
      if (first_rank()) each_trained(m, read);
      m.load_state(give);
    });
  }

 private:
  bool first_rank() const { return !room_.ranks || room_.ranks->rank() == 0; }
  template <class F>
  void each_trained(const LargeModel& m, F&& f) const {
    for (std::size_t i = 0; i < m.tensors().size(); ++i) {
      if (is_trained(form_.train, m.tensors()[i].part)) f(i);
    }
  }
  static std::size_t bytes_of(const LargeModel& m, std::size_t i) {
    return m.tensors()[i].size() * size_of(m.tensor_type());
  }

  // Logits and values of the first rows that `who` has seen.
  template <class Infer>
  void look(const LargePolicy& who, std::size_t rows, Infer&& infer) {
    const std::size_t outputs = spec_.distribution.outputs();
    logits_.resize(rows * outputs);
    values_.resize(rows);
    who.each_piece(rows, [&](std::size_t begin, std::size_t count) {
      const VlaOutputs out = infer(who.inputs_of(begin, count));
      const auto temperature = static_cast<float>(spec_.options.temperature);
      std::ranges::transform(out.logits, logits_.begin() + static_cast<std::ptrdiff_t>(begin * outputs),
                             [&](float v) { return v / temperature; });
      std::ranges::copy(out.values, values_.begin() + static_cast<std::ptrdiff_t>(begin));
    });
  }

  template <class F>
  void each_piece(std::size_t rows, F&& f) const {
    const auto most = static_cast<std::size_t>(form_.micro_batch);
    for (std::size_t begin = 0; begin < rows; begin += most) f(begin, std::min(most, rows - begin));
  }

  void read(const PolicyParameters<float>& parameters, const PolicyInput& input) {
    seen_.rows = input.rows;
    seen_.images.resize(input.rows * cameras_ * image_);
    seen_.tokens.resize(input.rows);
    std::size_t camera = 0;
    for (std::size_t f = 0; f < spec_.fields.size(); ++f) {
      if (!spec_.fields[f].raw) continue;
      const std::byte* column = input.columns[f];
      if (!is_tokens(spec_.fields[f])) {
        for (std::size_t r = 0; r < input.rows; ++r) {
          std::copy_n(reinterpret_cast<const std::uint8_t*>(column) + r * image_, image_,
                      seen_.images.data() + (r * cameras_ + camera) * image_);
        }
        ++camera;
        continue;
      }
      const std::size_t width = spec_.fields[f].values();
      for (std::size_t r = 0; r < input.rows; ++r) {
        const auto* at = reinterpret_cast<const std::int32_t*>(column) + r * width;
        seen_.tokens[r].assign(at, std::find_if(at, at + width, [](std::int32_t t) { return t < 0; }));
      }
    }
    const std::size_t floats = input.rows * spec_.observation_size;
    if (floats == 0) return;
    encoded_.resize(floats);
    seen_.proprio.resize(floats);
    encode(spec_.fields, input.columns, input.rows, encoded_.data());
    parameters.scale->apply<float>({encoded_.data(), floats}, seen_.proprio.data());
  }

  VlaInputs inputs_of(std::size_t begin, std::size_t rows) const {
    VlaInputs inputs;
    inputs.n = static_cast<std::int64_t>(rows);
    inputs.cameras = static_cast<std::int64_t>(cameras_);
    inputs.images = {seen_.images.data() + begin * cameras_ * image_, rows * cameras_ * image_};
    const std::size_t width = spec_.observation_size;
    if (width > 0) inputs.proprio = {seen_.proprio.data() + begin * width, rows * width};
    for (std::size_t r = begin; r < begin + rows; ++r) inputs.prompts.push_back(seen_.tokens[r]);
    return inputs;
  }

  ModelSpec spec_;
  PolicyRoom room_;
  LargeForm form_;
  std::size_t cameras_, image_;
  mutable std::shared_ptr<SharedModel> model_;  // of a learner
  std::atomic<int> held_ = 0;                   // how many keep its weights from changing
  EvaluatedDistribution<float> pi_;

  // Of the last calls.
  Seen seen_;
  std::size_t evaluated_ = 0;
  std::vector<float> encoded_, logits_, values_, by_logits_, by_values_;
};

}  // namespace

std::unique_ptr<Policy<float>> make_large_policy(const ModelSpec& spec, const PolicyRoom& room) {
  return std::make_unique<LargePolicy>(spec, room);
}

// What lies on a card is checked where the model is made.
PolicyMemory large_policy_memory(const ModelSpec& spec, const PolicyRoom& room) {
  const LargeForm form = large_form(spec);
  PolicyMemory memory;
  const auto rows = static_cast<double>(room.rows);
  memory.held = rows * (static_cast<double>(cameras_of(spec) * form.config.image * form.config.image * 3) +
                        4.0 * static_cast<double>(spec.distribution.outputs()) * (room.learned > 0 ? 3 : 1));
  if (room.device == "cpu" && room.learned > 0 && room.critic) memory.held += vla_memory(setup_of(form, room)).sum();
  return memory;
}

}  // namespace gipo
