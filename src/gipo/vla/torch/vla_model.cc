// The large model with its trainer: inference, and gradients by the fused head. The network is vla_network.h, where parameters lie and
// how they learn vla_parameters.h.
#include "gipo/vla/vla_model.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/core/rank_group.h"
#include "gipo/vla/torch/vla_network.h"
#include "gipo/vla/torch/vla_parameters.h"

namespace gipo {
namespace {

using namespace vla;

// A learner that acts with it calls from several threads, each of which would have threads of its own: bytes do not depend on
// how many there are, and nobody waits for them.
void use_one_thread() {
#ifdef __aarch64__  // there oneDNN calls the Arm Compute Library, which has threads of its own whatever is said
  static const bool without = (at::globalContext().setUserEnabledMkldnn(false), true);
  static_cast<void>(without);
#endif
  static thread_local const bool once = (at::set_num_threads(1), true);
  static_cast<void>(once);
}

class TorchLargeModel final : public LargeModel {
 public:
  TorchLargeModel(const VlaSetup& setup, at::Device device)
      : LargeModel(setup),
        c_(this->setup().config),
        device_(device),
        type_(device.is_cuda() ? at::kBFloat16 : at::kFloat),
        net_(this->setup(), device_, type_),
        parameters_(this->setup(), device_, type_) {
    const c10::InferenceMode guard;
    if (device.is_cuda() && setup.deterministic) {
      at::globalContext().setDeterministicAlgorithms(true, false);
      at::globalContext().setDeterministicFillUninitializedMemory(false);
    }
    net_.bind(parameters_.arrays());
    if (setup.average) {
      averaged_.emplace(this->setup(), device_, type_);
      averaged_->bind(parameters_.averaged());
    }
    if (setup.act_bits != 8) return;
    acting_.emplace(this->setup(), device_, type_, true);
    acting_->bind(parameters_.arrays());
  }

  void fill(std::uint64_t seed) override {
    const c10::InferenceMode guard;
    at::Generator random = at::globalContext().defaultGenerator(device_).clone();
    random.set_current_seed(seed);
    weights_change(Due::kAll);
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      const Tensor t = net_.value(i);
      switch (tensors()[i].fill) {
        case VlaTensor::Fill::kNormal:
          t.normal_(0, 0.02, random);
          break;
        case VlaTensor::Fill::kZero:
          t.zero_();
          break;
        case VlaTensor::Fill::kOne:
          t.fill_(1);
          break;
      }
    }
    parameters_.clear_low();
  }

  void set_tensor(std::size_t index, TensorType type, std::string_view bytes) override {
    const c10::InferenceMode guard;
    const at::ScalarType from = type == TensorType::kF32    ? at::kFloat
                                : type == TensorType::kBF16 ? at::kBFloat16
                                                            : at::kHalf;
    const Tensor to = net_.value(index);
    weights_change(Due::kAll);
    // copy_ alone reads these bytes.
    const Tensor source = at::from_blob(const_cast<char*>(bytes.data()), {to.numel()}, at::TensorOptions(from));
    const auto [low, at] = parameters_.low_of(index, to.numel());
    if (!low.defined() || from != at::kFloat) {
      to.view(-1).copy_(source);
      if (low.defined()) low.zero_();
      return;
    }
    const Tensor bits = source.to(device_).view(at::kInt), high = (bits + 0x8000).bitwise_right_shift(16);
    to.view(-1).view(at::kShort).copy_(high);
    low.copy_((bits - high.bitwise_left_shift(16)).narrow(0, at, low.numel()));
  }

  TensorType tensor_type() const override { return type_ == at::kFloat ? TensorType::kF32 : TensorType::kBF16; }

  void get_tensor(std::size_t index, bool merged, const std::function<void(std::string_view)>& take) const override {
    const c10::InferenceMode guard;
    Tensor value = net_.value(index);
    if (merged) {
      const auto [a, b] = net_.adapter_of(index);
      if (a.defined()) {
        value = at::addmm(value.to(at::kFloat), b.to(at::kFloat), a.to(at::kFloat), 1, setup().train.lora.scale())
                    .to(type_);
        changed_ = true;
      }
    }
    finish_changes();
    hand_over(value, take);
  }

  std::vector<float> gradient(std::size_t index) override {
    const c10::InferenceMode guard;
    if (!net_.is_trained(index)) throw Error(tensors()[index].name + " is not trained: it has no gradient");
    return to_host(net_.gradient(index));
  }

  VlaOutputs infer(const VlaInputs& inputs) override { return infer(net_, inputs); }

  VlaOutputs act(const VlaInputs& inputs) override {
    if (!acting_) return infer(net_, inputs);
    const c10::InferenceMode guard;
    if (const Due due = std::exchange(due_, Due::kNothing); due != Due::kNothing) acting_->take_fp8(due == Due::kAll);
    return infer(*acting_, inputs);
  }

  void begin_average() override {
    const c10::InferenceMode guard;
    parameters_.begin_average();
    changed_ = true;
  }
  VlaOutputs infer_average(const VlaInputs& inputs) override {
    GIPO_CHECK(averaged_.has_value());
    return infer(*averaged_, inputs);
  }

  VlaFigures accumulate(const VlaSamples& s, const VlaObjective& objective, std::int64_t total) override {
    const c10::InferenceMode guard;
    if (!setup().train.train) throw Error("large model: it was made without training");
    net_.check(s.inputs);
    check_samples(s, objective);
    graphs_.clear();  // the memory of recorded inference is needed, and weights are about to change
    if (first_) net_.begin_gradient();
    parameters_.gradient_changed();
    Forward f;
    f.rows = net_.find_rows(s.inputs);
    f.hidden = net_.run(f, net_.images_of(s.inputs), net_.proprio_of(s.inputs), true);
    VlaFigures figures;
    const Tensor by_logits = policy_gradient(f, s, objective, total, figures);
    const Tensor by_hidden = head_gradient(f, by_logits, s, objective, total, figures);
    net_.backward(f, by_hidden);
    net_.end_gradient();
    first_ = false;
    return figures;
  }

  void accumulate(const VlaInputs& inputs, std::span<const float> by_logits,
                  std::span<const float> by_values) override {
    const c10::InferenceMode guard;
    if (!setup().record) use_one_thread();
    if (!setup().train.train) throw Error("large model: it was made without training");
    net_.check(inputs);
    GIPO_CHECK(by_logits.size() == static_cast<std::size_t>(inputs.n * c_.actions() * c_.choices));
    GIPO_CHECK(by_values.size() == static_cast<std::size_t>(inputs.n));
    graphs_.clear();
    if (first_) net_.begin_gradient();
    parameters_.gradient_changed();
    Forward f;
    f.rows = net_.find_rows(inputs);
    f.hidden = net_.run(f, net_.images_of(inputs), net_.proprio_of(inputs), true);
    net_.values_of(net_.first_rows(f, f.hidden), &f.value);
    net_.value_gradient(f.value, net_.on_device(by_values, {inputs.n}, at::kFloat), false);
    net_.backward(f,
                  net_.head_gradient(f, net_.on_device(by_logits, {inputs.n * c_.actions(), c_.choices}, at::kFloat)));
    net_.end_gradient();
    first_ = false;
  }

  std::array<double, 2> norms() override {
    const c10::InferenceMode guard;
    if (!setup().record) use_one_thread();
    return parameters_.norms();
  }

  void drop_gradient() override { first_ = true; }

  double step(const VlaStep& step) override {
    const c10::InferenceMode guard;
    if (!setup().record) use_one_thread();
    GIPO_CHECK(!first_);
    weights_change(Due::kTrained);
    const double norm = parameters_.step(step);
    first_ = true;
    return norm;
  }

  std::size_t state_bytes() const override { return parameters_.state_bytes(); }
  void save_state(const std::function<void(std::string_view)>& take) const override {
    const c10::InferenceMode guard;
    finish_changes();
    parameters_.save_state(take);
  }
  void load_state(const std::function<void(char*, std::size_t)>& give) override {
    const c10::InferenceMode guard;
    weights_change(Due::kTrained);
    parameters_.load_state(give);
    first_ = true;
  }

  double peak_bytes() override { return device_.is_cuda() ? device_peak_bytes(device_) : 0; }
  void wait() override { device_wait(device_); }

 private:
  enum class Due { kNothing, kTrained, kAll };  // of the weights in 8 bits
  void weights_change(Due which) {
    changed_ = true;
    due_ = std::max(due_, which);
  }

  struct Recorded {  // inference of one shape
    Tensor images, proprio, logits, values;
    Rows rows;
    std::unique_ptr<RecordedWork> work;
  };

  void check_samples(const VlaSamples& s, const VlaObjective& objective) const {
    const auto n = static_cast<std::size_t>(s.inputs.n), tokens = n * static_cast<std::size_t>(c_.actions());
    const Surrogate surrogate(objective.surrogate);
    const auto want = [](std::size_t there, std::size_t wanted, const char* what) {
      if (there != wanted) throw Error(fmt::format("large model: {} {}: wanted {}", there, what, wanted));
    };
    want(s.actions.size(), tokens, "actions");
    want(s.behaviour.size(), tokens, "log-probs of the behaviour");
    if (surrogate.centred()) want(s.centre.size(), tokens, "log-probs of the centre");
    want(s.advantage.size(), n, "advantages");
    if (surrogate.reads_age()) want(s.age.size(), n, "ages");
    want(s.target.size(), n, "targets of the value");
    for (const std::int32_t action : s.actions) {
      if (action < 0 || action >= kHeadChoices)
        throw Error(fmt::format("large model: action {}: wanted 0 to 255", action));
    }
    if (!(objective.temperature > 0)) {
      throw Error(fmt::format("large model: temperature {}: wanted above 0", objective.temperature));
    }
  }

  VlaOutputs infer(const Network& net, const VlaInputs& inputs) {
    const c10::InferenceMode guard;
    if (!setup().record) use_one_thread();
    net_.check(inputs);
    if (!device_.is_cuda() || !setup().record) {
      Forward f;
      f.rows = net_.find_rows(inputs);
      const Tensor hidden = net.run(f, net_.images_of(inputs), net_.proprio_of(inputs), false);
      return {to_host(net.logits_of(hidden)), to_host(net.values_of(net.first_rows(f, hidden), nullptr))};
    }
    Recorded& r = recorded(net, inputs);
    r.images.copy_(net_.images_of(inputs));
    if (r.proprio.defined()) r.proprio.copy_(net_.proprio_of(inputs));
    r.rows.tokens.copy_(net_.tokens_of(inputs));
    r.work->replay();
    return {to_host(r.logits), to_host(r.values)};
  }

  Recorded& recorded(const Network& net, const VlaInputs& in) {
    const std::size_t which = &net == &net_ ? 0 : acting_ && &net == &*acting_ ? 1 : 2;
    std::vector<std::size_t> shape{which, static_cast<std::size_t>(in.n), static_cast<std::size_t>(in.cameras)};
    for (const auto& prompt : in.prompts) shape.push_back(prompt.size());
    if (const auto found = graphs_.find(shape); found != graphs_.end()) return found->second;
    if (graphs_.size() >= kMostGraphs) graphs_.clear();
    Recorded& r = graphs_[shape];
    r.rows = net_.find_rows(in);
    r.images = net_.images_of(in);
    r.proprio = net_.proprio_of(in);
    device_wait(device_);
    r.work = record_work([this, &net, &r] {
      const c10::InferenceMode guard;
      Forward f;
      f.rows = r.rows;
      const Tensor hidden = net.run(f, r.images, r.proprio, false);
      r.logits = net.logits_of(hidden);
      r.values = net.values_of(net.first_rows(f, hidden), nullptr);
    });
    return r;
  }

  // By the logits; the figures of the policy.
  Tensor policy_gradient(const Forward& f, const VlaSamples& s, const VlaObjective& objective, std::int64_t total,
                         VlaFigures& figures) const {
    const Surrogate surrogate(objective.surrogate);
    const std::int64_t n = s.inputs.n, tokens = c_.actions();
    HeadOptions o;
    o.n = n, o.tokens = tokens;
    o.each = objective.ratio == ChunkRatio::kToken ? 1 : objective.ratio == ChunkRatio::kAction ? c_.dims : tokens;
    o.temperature = static_cast<float>(objective.temperature),
    o.entropy_coef = static_cast<float>(objective.entropy_coef);
    o.weight = 1 / static_cast<float>(total);
    o.surrogate = surrogate.choice();
    o.centred = surrogate.centred(), o.importance_max = static_cast<float>(surrogate.importance_max());
    const std::int64_t ratios = tokens / o.each;
    const Tensor logits = net_.logits_of(f.hidden), by_logits = at::empty_like(logits);
    const auto given = [&](std::span<const float> v) {
      return v.empty() ? Tensor() : net_.on_device(v, {n, static_cast<std::int64_t>(v.size()) / n}, at::kFloat);
    };
    const auto made = [&](std::int64_t width) { return at::empty({n, width}, logits.options()); };
    const auto data = [](const Tensor& t) { return t.defined() ? t.const_data_ptr<float>() : nullptr; };
    const Tensor action = net_.on_device(s.actions, {n, tokens}, at::kInt), behaviour = given(s.behaviour);
    const Tensor centre = given(o.centred ? s.centre : std::span<const float>()), advantage = given(s.advantage);
    const Tensor age = given(surrogate.reads_age() ? s.age : std::span<const float>());
    const Tensor log_prob = made(tokens), entropy = made(tokens), log_ratio = made(ratios), multiplier = made(ratios),
                 loss = made(ratios);
    HeadArrays a{data(logits),
                 action.const_data_ptr<std::int32_t>(),
                 data(behaviour),
                 data(centre),
                 data(advantage),
                 data(age),
                 log_prob.mutable_data_ptr<float>(),
                 entropy.mutable_data_ptr<float>(),
                 log_ratio.mutable_data_ptr<float>(),
                 multiplier.mutable_data_ptr<float>(),
                 loss.mutable_data_ptr<float>(),
                 nullptr};
    if (o.surrogate.kind == SurrogateKind::kM2po) {
      run_head(o, a, device_);
      Tensor about = log_ratio;
      if (o.centred) about = about - (centre - behaviour).view({n, ratios, o.each}).sum(2);
      o.kept = largest_kept<float>(to_host(about), o.surrogate.first);
    }
    a.d_logits = by_logits.mutable_data_ptr<float>();
    run_head(o, a, device_);
    figures.policy_loss = loss.sum().item<double>() / static_cast<double>(n);
    figures.entropy = entropy.mean().item<double>();
    figures.log_prob = to_host(log_prob), figures.log_ratio = to_host(log_ratio),
    figures.multiplier = to_host(multiplier);
    return by_logits;
  }

  // By the hidden states; those of the action head and of the value head are added.
  Tensor head_gradient(Forward& f, const Tensor& by_logits, const VlaSamples& s, const VlaObjective& objective,
                       std::int64_t total, VlaFigures& figures) const {
    const Tensor values = net_.values_of(net_.first_rows(f, f.hidden), &f.value);
    const Tensor error = values - net_.on_device(s.target, {s.inputs.n}, at::kFloat);
    figures.value_loss = error.square().mean().item<double>();
    figures.values = to_host(values);
    Tensor by_hidden = net_.head_gradient(f, by_logits);
    const Tensor by_values = error.mul(2 * objective.value_coef / static_cast<double>(total));
    const Tensor by_first = net_.value_gradient(f.value, by_values, objective.value_reaches_trunk);
    if (objective.value_reaches_trunk) net_.first_rows(f, by_hidden).add_(by_first);
    return by_hidden;
  }

  // ---- Bytes

  // What is handed over is read by a stream of its own.
  void finish_changes() const {
    if (changed_.exchange(false)) device_wait(device_);
  }
  static std::vector<float> to_host(const Tensor& t) {
    const Tensor host = t.to(at::kCPU, at::kFloat).contiguous();
    const float* const data = host.const_data_ptr<float>();
    return {data, data + host.numel()};
  }
  static constexpr std::size_t kMostGraphs = 8;
  const VlaConfig& c_;
  at::Device device_;
  at::ScalarType type_;
  Network net_;
  std::optional<Network> acting_;    // over the same parameters, in 8 bits
  std::optional<Network> averaged_;  // over their average
  Due due_ = Due::kAll;
  Parameters parameters_;
  bool first_ = true;                          // no gradient yet
  mutable std::atomic<bool> changed_ = false;  // weights, by work that may not have been done

  std::map<std::vector<std::size_t>, Recorded> graphs_;
};

}  // namespace

std::unique_ptr<LargeModel> make_large_model(const VlaSetup& setup) {
  check_config(setup.config);
  const at::Device device = find_device(setup.device);
  if (device.is_cuda()) {
    const VlaMemory memory = vla_memory(setup);
    const double there = device_bytes(device);
    if (memory.sum() > there) {
      throw Error(fmt::format("large model: {} has {:.1f} GiB free, and {} are needed before any activation{}",
                              setup.device, there / (1024.0 * 1024 * 1024), memory.words(),
                              setup.train.train && setup.train.lora.rank == 0 ? "; LoRA needs less" : ""));
    }
  }
  return std::make_unique<TorchLargeModel>(setup, device);
}

}  // namespace gipo
